"""Adapters to whatever answers a prompt: one protocol, one file per wire format. Knows nothing of routing or money."""
