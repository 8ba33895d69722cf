"""A real HTTP server that stands in for the providers: their wire formats, and every way they fail, by script."""

from tests.scripted_provider.provider import Raw, Received, ScriptedProvider

__all__ = ["Raw", "Received", "ScriptedProvider"]
