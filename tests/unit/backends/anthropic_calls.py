"""Calls of the Anthropic adapter over a real connection."""

from contextlib import aclosing

from backends.anthropic import AnthropicBackend
from backends.protocol import Call, Chunk, Operation
from backends.scripted import Outcome
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import ScriptedProvider

NATIVE = b'{"model": "auto","max_tokens":9, "x-new":1.50,"messages":[{"role":"user","content":"hi"}],"stream":%s}'


def make_call(body: bytes, operation: Operation, model: str = "claude-x", *, stream: bool = False) -> Call:
    return Call(operation, model, body, stream, "r-1")


async def collect(provider: ScriptedProvider, call: Call) -> list[Chunk]:
    backend = AnthropicBackend("b", provider.base_url, "key")
    async with aclosing(backend):
        return await read_stream.collect(backend, call)


OUTCOME = Outcome(pieces=("Hello", "."), usage=Usage(input_tokens=12, cached_input_tokens=5, output_tokens=4))


async def body_of(call: Call) -> bytes:
    """What Anthropic is sent for it."""
    async with ScriptedProvider(OUTCOME) as provider:
        await collect(provider, call)
        [request] = provider.received
    return request.body
