"""Calls of the OpenAI-compatible adapter over a real connection."""

from typing import Any

from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Timeouts
from tests.scripted_provider import ScriptedProvider

KEY = "sk-canary-1234567890"
JSON = {"content-type": "application/json"}


def make_call(*, stream: bool = True, body: bytes | None = None, timeouts: Timeouts | None = None) -> Call:
    sent = body or (b'{"model":"auto", "x-unknown": 1.50,"stream":%s}' % (b"true" if stream else b"false"))
    return Call("chat.completions", "the-model", sent, stream, "r-1", timeouts or Timeouts())


def make_backend(provider: ScriptedProvider, **options: Any) -> OpenAICompatibleBackend:
    return OpenAICompatibleBackend("b", provider.base_url, KEY, **options)
