"""Converts ledger entries to database rows, and back."""
