"""Estimates a prompt's difficulty and each model's expected quality; training and evaluation. Knows nothing of HTTP or
money."""
