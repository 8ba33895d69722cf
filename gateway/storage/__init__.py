"""The only SQL and the only Redis."""
