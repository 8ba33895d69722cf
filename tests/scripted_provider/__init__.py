"""A real HTTP server that plays the providers by script: their wire formats, and every way in which they fail."""

from tests.scripted_provider.provider import Raw, Received, ScriptedProvider

__all__ = ["Raw", "Received", "ScriptedProvider"]
