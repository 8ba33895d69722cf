"""Tells operators, outside of any page, that a budget is nearly or fully spent."""
