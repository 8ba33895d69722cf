"""Requests to this machine go straight there, whatever proxy the environment names; knows nobody who asks."""

from typing import Final

DIRECT: Final[dict[str, None]] = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}
"""httpx's `mounts`: what a command asks of its own gateway or engine would else leave through HTTP_PROXY and fail."""
