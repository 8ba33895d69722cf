"""Kept responses and conversations in SQLite files of their own, for deployments without Redis."""
