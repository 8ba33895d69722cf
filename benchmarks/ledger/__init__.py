"""What the ledger costs a request, what it can take, and how big and how quick to ask it is: see __main__.py."""
