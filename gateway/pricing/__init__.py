"""Prices as dated facts, and the cost of a usage under them. Pure."""
