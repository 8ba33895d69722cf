"""The ledger's cost per request, throughput, size and query times: see __main__.py."""
