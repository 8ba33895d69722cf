"""Kept responses in a SQLite file of their own, where there is no Redis."""
