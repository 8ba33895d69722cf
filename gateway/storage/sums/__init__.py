"""Sums by hour and day: how entries are added to them, and how reports read them."""
