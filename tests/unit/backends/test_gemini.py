"""The Gemini adapter over a real connection: what is asked again when it is refused."""

import json
from contextlib import aclosing

import pytest

from backends.errors import UpstreamAuth, UpstreamRejected
from backends.formats.json_objects import Fields
from backends.gemini import GeminiBackend
from backends.protocol import Call, Chunk
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

SAID = {"role": "model", "parts": [{"text": "x", "thoughtSignature": "of another"}]}
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "fg"]
ANSWER = b'{"candidates":[{"content":{"parts":[{"text":"y"}]},"finishReason":"STOP"}]}'


async def collect(provider: ScriptedProvider, *contents: object) -> list[Chunk]:
    body = json.dumps({"contents": contents}).encode()
    async with aclosing(GeminiBackend("b", f"{provider.origin}/v1beta", "key")) as backend:
        return await read_stream.collect(backend, Call("generate_content", "m", body, False, "r-1"))


@pytest.mark.parametrize("message", ["Corrupted thought signature.", "Thought signature is not valid.."])
async def test_a_signature_that_google_cannot_read_is_left_out(message: str) -> None:
    refused = Raw((json.dumps({"error": {"message": message}}).encode(),), status=400, headers=JSON)
    async with ScriptedProvider(refused, Raw((ANSWER,), headers=JSON), refused) as provider:
        [chunk] = await collect(provider, SAID)
        assert chunk.payload == ANSWER
        with pytest.raises(UpstreamRejected):
            await collect(provider, {"parts": [{"text": "x"}]})
        asked = [request.json["contents"] for request in provider.received]
    assert asked == [[SAID], [{"role": "model", "parts": [{"text": "x"}]}], [{"parts": [{"text": "x"}]}]]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("field", "calls"), [({}, 2), ({"parallel_tool_calls": False}, 1)])
async def test_who_wants_one_call_at_a_time_gets_one(is_stream: bool, field: Fields, calls: int) -> None:
    """Gemini calls as many as it likes, and clients that forbid it read the first alone, or none."""
    called = [{"functionCall": {"name": name, "args": {}}} for name in "fg"]
    said = json.dumps({"candidates": [{"content": {"parts": called}, "finishReason": "STOP"}]}).encode()
    answer = Raw((b"data: %b\r\n\r\n" % said if is_stream else said,), headers=EVENTS if is_stream else JSON)
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": TOOLS} | field).encode()
    async with ScriptedProvider(answer) as provider, aclosing(GeminiBackend("b", provider.origin, "key")) as backend:
        chunks = await read_stream.collect(backend, Call("chat.completions", "m", body, is_stream, "r-1"))
    whole = b"".join(chunk.payload for chunk in chunks)
    assert whole.count(b'"arguments"') == calls
    assert b'"finish_reason":"tool_calls"' in whole


FORBIDDEN = b'{"error": {"code": 403, "message": "The caller does not have permission", "status": "PERMISSION_DENIED"}}'


@pytest.mark.parametrize("name", ['"fileData": {"fileUri"', '"file_data": {"file_ur\\u0069"', '"cachedContent"'])
async def test_a_file_or_cache_that_nobody_may_read_closes_google_to_nobody_else(name: str) -> None:
    body = b'{"contents": [{"parts": [{"text": "x"}]}], %b: "files/of-another"' % name.encode()
    call = Call("generate_content", "m", body + b"}" * (1 + name.count("{")), False, "r-1")
    refused = Raw((FORBIDDEN,), status=403, headers=JSON)
    async with (
        ScriptedProvider(refused, refused) as provider,
        aclosing(GeminiBackend("b", f"{provider.origin}/v1beta", "key")) as backend,
    ):
        with pytest.raises(UpstreamRejected, match="may not be there, or not for our key") as caught:
            await backend.open(call)
        assert caught.value.body == b""  # Google's words may name our project
        with pytest.raises(UpstreamAuth):
            await collect(provider, SAID)
