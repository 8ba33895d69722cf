"""Prompt to difficulty and expected quality per model; its training and evaluation. Knows nothing of HTTP or money."""
