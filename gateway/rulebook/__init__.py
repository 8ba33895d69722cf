"""Routing rules as versions, and what traffic has come to under each."""
