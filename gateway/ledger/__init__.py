"""The ledger: what is written about every accepted request, and how it survives anything."""
