"""The Gemini adapter over a real connection: what is asked again when it is refused."""

import json
from contextlib import aclosing

import pytest

from backends.errors import UpstreamAuth, UpstreamRejected
from backends.gemini import GeminiBackend
from backends.protocol import Call, Chunk
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

SAID = {"role": "model", "parts": [{"text": "x", "thoughtSignature": "of another"}]}
JSON = {"content-type": "application/json"}
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
