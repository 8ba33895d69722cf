"""The ledger: what is recorded about every accepted request, and how the record survives crashes and power loss."""
