"""Bodies that break parsers, sent through the whole path: each is refused with the reason, or passed on byte for byte,
and the next caller is served."""

import gzip
import json
import tracemalloc
from contextlib import suppress
from functools import cache

import pytest

from backends.errors import BackendError
from backends.http.reply import MAX_ANSWER_BYTES
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Chunk
from gateway.errors import RequestError
from gateway.pipeline import Incoming
from tests.rig import KEY, RecordingCaller, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.faults
START = b'{"model":"auto","messages":[{"role":"user","content":"hi"}]'
DEPTH = 1_000_000
"""Python 3.11 parses to a depth of 1,000, 3.13 to 10,000, 3.14 as far as its stack allows: 260,000 with 8 MiB."""
DEEP = b"[" * DEPTH + b"]" * DEPTH
REFUSED: dict[str, bytes] = {
    "too deep in a field we read": b'{"model":"auto","messages":' + DEEP + b"}",
    "too deep in a field we do not read": START + b',"metadata":' + DEEP + b"}",
    "too deep in objects": START + b',"x":' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}",
    "millions of objects": START + b',"x":[' + b"{}," * 3_000_000 + b"0]}",
    "millions of members": START + b"".join(b',"%d":1' % number for number in range(300_000)) + b"}",
    "a number beyond all bounds": START + b',"max_tokens":1e400}',
    "a whole number beyond 64 bits": START + b',"max_tokens":9223372036854775808}',
    "NaN": START + b',"max_tokens":NaN}',
    "the model twice": START + b',"model":"b"}',
    "the messages twice": START + b',"messages":[]}',
    "NUL outside a string": START + b"\x00}",
    "a raw NUL inside a string": b'{"model":"au\x00to","messages":[{"role":"user","content":"hi"}]}',
    "half a UTF-8 character": b'{"model":"auto","messages":[{"role":"user","content":"\xc3"}]}',
    "an escaped lone surrogate": b'{"model":"auto","messages":[{"role":"user","content":"\\ud800"}]}',
    "UTF-16": START.decode().encode("utf-16") + "}".encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + START + b"}",
    "nothing": b"",
    "text after the end": START + b"} {}",
}
PASSED: dict[str, bytes] = {
    "an escaped NUL": b'{"model":"auto","messages":[{"role":"user","content":"\\u0000"}]}',
    "a huge number in a field we do not read": START + b',"seed":1e400}',
    "a million blanks": START + b" " * 1_000_000 + b"}",
    "keys nobody knows": START + b',"__proto__":{"a":1},"constructor":[]}',
}


async def ask(rig: Rig, body: bytes) -> RecordingCaller:
    caller = RecordingCaller()
    await rig.pipeline.answer(Incoming("chat.completions", KEY, body), caller)
    return caller


async def assert_serves(rig: Rig) -> None:
    assert (await ask(rig, START + b"}")).is_complete


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_with_a_sentence_before_or_after_it_was_accepted_but_never_answered(name: str) -> None:
    async with ScriptedProvider() as provider:
        rig = Rig()
        rig.pipeline.backends = {
            "one": OpenAICompatibleBackend("one", provider.base_url, None),
            "two": OpenAICompatibleBackend("two", provider.base_url, None),
        }
        with pytest.raises(RequestError) as caught:
            await ask(rig, REFUSED[name])
        assert len(caught.value.message) > 10
        assert not provider.received
        assert not rig.ledger.open
        assert all(entry.cost is not None and not entry.cost.total_pico_usd for entry in rig.ledger.entries)
        await assert_serves(rig)
        for backend in rig.pipeline.backends.values():
            await backend.aclose()


@pytest.mark.parametrize("depth", [500, 5_000, 15_000])
async def test_what_only_some_pythons_can_read_is_answered_or_refused_and_never_left_open(depth: int) -> None:
    blocks = b'[{"type":"text","text":"x","content":' * depth + b'"x"' + b"}]" * depth
    schema = b'{"type":"object","properties":{"a":' * depth + b"{}" + b"}}" * depth
    tools = b',"tools":[{"type":"function","function":{"name":"f","parameters":' + schema + b"}}]}"
    for body in (b'{"model":"auto","messages":[{"role":"user","content":' + blocks + b"}]}", START + tools):
        rig = Rig()
        with suppress(RequestError):
            assert (await ask(rig, body)).is_complete
        assert not rig.ledger.open


@pytest.mark.parametrize("name", PASSED)
async def test_what_is_valid_json_reaches_the_upstream_as_it_came(name: str) -> None:
    async with ScriptedProvider() as provider:
        rig = Rig()
        backend = OpenAICompatibleBackend("one", provider.base_url, None)
        rig.pipeline.backends = {"one": backend, "two": rig.two}
        try:
            assert (await ask(rig, PASSED[name])).is_complete
        finally:
            await backend.aclose()
        [sent] = provider.received
        assert sent.body.replace(b'"upstream-a"', b'"auto"') == PASSED[name]


async def test_a_hundred_megabytes_of_prompt_cost_no_more_than_a_few_copies() -> None:
    size = 100 * 1024 * 1024
    body = b'{"model":"auto","messages":[{"role":"user","content":"' + b"x" * size + b'"}]}'
    rig = Rig(classifier=None)
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match=r"too long: .* tokens; the widest model allowed here takes"):
            await ask(rig, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size
    assert not rig.ledger.entries
    await assert_serves(rig)


@cache
def bomb() -> bytes:
    """A small body that unpacks to twice the size of the largest answer that is read."""
    return gzip.compress(bytes(2 * MAX_ANSWER_BYTES), compresslevel=9)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("status", [200, 500])
async def test_an_upstream_that_sends_a_compressed_bomb_is_refused_by_its_decoded_size(
    is_stream: bool, status: int
) -> None:
    kind = "text/event-stream" if is_stream else "application/json"
    raw = Raw((bomb(),), status=status, headers={"content-type": kind, "content-encoding": "gzip"})
    async with ScriptedProvider(raw) as provider:
        backend = OpenAICompatibleBackend("one", provider.base_url, None)
        call = Call("chat.completions", "m", json.dumps({"model": "m", "stream": is_stream}).encode(), is_stream, "r")
        chunks: list[Chunk] = []

        async def read() -> None:
            reply = await backend.open(call)
            try:
                async for chunk in reply:
                    chunks.append(chunk)  # noqa: PERF401 (what came before the error matters)
            finally:
                await reply.aclose()

        tracemalloc.start()
        try:
            with pytest.raises(BackendError):
                await read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await backend.aclose()
        assert not chunks
        assert peak < MAX_ANSWER_BYTES + 32 * 1024 * 1024, "measured as it is decoded"
