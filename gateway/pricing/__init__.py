"""Prices as dated facts, and what a usage costs under them. Pure."""
