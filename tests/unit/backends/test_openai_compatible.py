"""The OpenAI-compatible adapter over a real connection: what is sent, where to, and how it ends."""

import asyncio
import gc
import gzip
import json
import socket
from collections.abc import Mapping
from contextlib import aclosing, suppress

import msgspec
import pytest

from backends.dialects import dialect_of
from backends.errors import (
    BackendError,
    ConnectFailed,
    StreamBroken,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.http.http1_client import Http1Client
from backends.http.http1_response import Http1Response
from backends.http_backend import Exchange
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import BackendHealth, Call, Chunk, Timeouts
from backends.scripted import Outcome
from tests import read_stream
from tests.hand_clock import HandClock
from tests.ports import refusing_port
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.openai_calls import JSON, KEY, make_backend, make_call
from tests.waiting import until

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' + DONE


async def collect(backend: OpenAICompatibleBackend, call: Call) -> list[Chunk]:
    async with aclosing(backend):
        return await read_stream.collect(backend, call)


async def test_a_refusal_inside_a_stream_of_speech_is_told_without_our_key() -> None:
    event = b'data: {"type":"error","error":{"code":400,"message":"is it sk-secret?"}}\n\n'
    speech = Call("audio.speech", "m", b'{"input":"a"}', True, "r-1")
    async with (
        ScriptedProvider(Raw((event,), headers={"content-type": "text/event-stream"})) as provider,
        aclosing(OpenAICompatibleBackend("b", provider.base_url, "sk-secret")) as backend,
    ):
        with pytest.raises(UpstreamRejected) as caught:
            await read_stream.collect(backend, speech)
    assert caught.value.body == b""


async def test_a_stream_is_cut_if_only_its_end_is_told_where_others_say_why() -> None:
    """llama-cpp-python's server (0.3.36) ends a running stream so when another request comes: it was a whole answer.

    vLLM (its issue 27572) and vllm-mlx (628) tell the reason of some streams alone, and the usage of all they finish.
    """
    clock, streams = HandClock(), {"content-type": "text/event-stream"}
    whole, cut = Raw((EVENT, END), headers=streams), Raw((EVENT, DONE), headers=streams)
    counted = Raw(
        (EVENT, b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n', DONE), headers=streams
    )
    another = msgspec.structs.replace(make_call(), upstream_model="another")
    async with (
        ScriptedProvider(cut, whole, whole, counted, cut, cut, cut) as provider,
        aclosing(make_backend(provider, monotonic=clock)) as backend,
    ):
        for call in (make_call(), make_call(), make_call(), make_call(), another):
            assert (await read_stream.collect(backend, call))[-1].is_done
            clock.now += 1000  # the hour is since the last stream that told it
        with pytest.raises(StreamBroken, match="in the middle"):
            await read_stream.collect(backend, make_call())
        clock.now += 3600
        assert (await read_stream.collect(backend, make_call()))[-1].is_done


async def test_what_is_sent() -> None:
    async with ScriptedProvider() as provider:
        backend = make_backend(provider)
        await collect(backend, make_call())
        [request] = provider.received
    headers = {key.lower(): value for key, value in request.headers.items()}
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-request-id"] == "r-1"
    assert headers["content-length"] == str(len(request.body))
    assert request.body == (
        b'{"model":"the-model", "x-unknown": 1.50,"stream":true,"stream_options":{"include_usage":true}}'
    )


@pytest.mark.parametrize(
    "answer",
    [Raw((b"{}",), status=429), Raw((b"{}",), status=400), Raw((b"{",)), Raw((b"{",), is_reset=True)],
)
async def test_a_call_that_failed_is_freed_without_a_search_for_cycles(answer: Raw) -> None:
    gc.collect()
    gc.disable()
    try:
        async with ScriptedProvider(answer) as provider, aclosing(make_backend(provider)) as backend:
            with suppress(BackendError):
                await backend.open(make_call(stream=False))
            await asyncio.sleep(0)  # until the loop's iteration that woke us has ended, it refers to the error
            left = sum(type(one) is Exchange for one in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0


async def test_googles_400_of_a_wrong_key_is_not_the_callers_fault() -> None:
    body = b'[{"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}]'
    refusals = {UpstreamAuth: dialect_of("gemini"), UpstreamRejected: dialect_of("another")}
    for kind, dialect in refusals.items():
        async with ScriptedProvider(Raw((body,), status=400, headers=JSON)) as provider:
            with pytest.raises(kind):
                await collect(make_backend(provider, dialect=dialect), make_call())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_so_the_key_stays_where_it_belongs(status: int) -> None:
    async with ScriptedProvider() as canary:
        moved = Raw(status=status, headers={"location": f"{canary.base_url}/chat/completions"})
        async with ScriptedProvider(moved) as provider:
            with pytest.raises(UpstreamUnavailable):
                await collect(make_backend(provider), make_call())
        assert canary.received == []


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedProvider() as canary, ScriptedProvider() as provider:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, canary.origin)
        await collect(make_backend(provider), make_call())
        assert canary.received == []


async def test_no_cookie_is_kept() -> None:
    async with ScriptedProvider(Raw((EVENT, END), headers={"set-cookie": "a=b"})) as provider:
        backend = make_backend(provider)
        for _ in range(2):
            reply = await backend.open(make_call())
            assert [chunk async for chunk in reply]
            await reply.aclose()
        await backend.aclose()
        assert "cookie" not in {key.lower() for key in provider.received[1].headers}


async def test_an_auth_error_hides_the_providers_body() -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    async with ScriptedProvider(Raw((body,), status=401, headers=JSON)) as provider:
        with pytest.raises(UpstreamAuth) as caught:
            await collect(make_backend(provider), make_call())
    assert KEY not in repr(vars(caught.value)) + str(caught.value)


@pytest.mark.parametrize("before", [b"", b"data:"])
async def test_a_rejection_carries_the_body_for_the_caller(before: bytes) -> None:
    """Xiaomi's MiMo tells a stream's as an event (9router #1210): clients read no message in it."""
    body = b'{"error":{"message":"too long","code":"context_length_exceeded"}}'
    async with ScriptedProvider(Raw((before + body,), status=400, headers=JSON)) as provider:
        with pytest.raises(UpstreamRejected, match=r"400 \(context_length_exceeded\)") as caught:
            await collect(make_backend(provider), make_call())
    assert caught.value.body == body


async def test_a_compressed_answer_is_read() -> None:
    body = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
    raw = Raw((gzip.compress(body),), headers=JSON | {"content-encoding": "gzip"})
    async with ScriptedProvider(raw) as provider:
        [chunk] = await collect(make_backend(provider), make_call(stream=False))
    assert chunk.payload == body


async def test_a_compressed_bomb_is_refused_by_its_decoded_size() -> None:
    bomb = gzip.compress(b" " * (80 * 1024 * 1024), compresslevel=9)
    assert len(bomb) < 100_000
    async with ScriptedProvider(Raw((bomb,), headers=JSON | {"content-encoding": "gzip"})) as provider:
        with pytest.raises(UpstreamUnavailable, match="over"):
            await collect(make_backend(provider), make_call(stream=False))


async def test_a_stream_answered_with_json_is_not_a_stream() -> None:
    async with ScriptedProvider(Raw((b'{"choices":[{}]}',), headers=JSON)) as provider:
        with pytest.raises(UpstreamUnavailable, match="without a stream"):
            await collect(make_backend(provider), make_call())


async def test_leaving_early_cuts_the_upstream() -> None:
    async with ScriptedProvider(Outcome(pieces=("w",) * 1000, piece_delay_seconds=0.01)) as provider:
        backend = make_backend(provider)
        reply = await backend.open(make_call())
        async for chunk in reply:
            if chunk.has_output:
                break
        await reply.aclose()
        await until(lambda: provider.cut_by_client)
        await backend.aclose()


class NotingClient(Http1Client):
    """Remembers its last response."""

    last: Http1Response

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> Http1Response:
        self.last = await super().send(method, url, headers, body, timeouts=timeouts)
        return self.last


async def test_a_complete_answer_leaves_its_connection_to_the_next() -> None:
    async with ScriptedProvider() as provider:
        client = NotingClient("b")
        backend = make_backend(provider, client=client)
        for _ in range(5):
            for stream in (True, False):
                reply = await backend.open(make_call(stream=stream))
                assert [chunk async for chunk in reply]
                await reply.aclose()
                while not client.last.is_complete:  # its last bytes may arrive after the event they end
                    await asyncio.sleep(0.005)
        await backend.aclose()
        assert provider.connections == 1


HEALTH: list[tuple[str, Raw, BackendHealth]] = [
    (
        "engine",
        Raw((b'{"status":"ok","free_slots":3,"running":5,"waiting":0,"queue_seconds":0.25}',), headers=JSON),
        BackendHealth(True, "ok", 3, 5, 0, 0.25),
    ),
    ("engine", Raw((b'{"status":"stalled"}',), status=503, headers=JSON), BackendHealth(False, "stalled")),
    (
        "vllm",
        Raw((b"vllm:num_requests_running 3.0\nvllm:num_requests_waiting 0.0\n",)),
        BackendHealth(True, "", 5, 3, 0),
    ),
    ("sglang", Raw((b"sglang:num_running_reqs 3.0\nsglang:num_queue_reqs 2.0\n",)), BackendHealth(True, "", 0, 3, 2)),
    ("vllm", Raw((b"",), status=500), BackendHealth(False, "health answered 500")),
    ("models", Raw((b"{}",), headers=JSON), BackendHealth(True)),
    ("models", Raw((b"{}",), status=401, headers=JSON), BackendHealth(False, "health answered 401")),
]


@pytest.mark.parametrize(("source", "page", "expected"), HEALTH)
async def test_health(source: str, page: Raw, expected: BackendHealth) -> None:
    async with ScriptedProvider(pages=page) as provider:
        backend = make_backend(provider, health_from=source, max_running=8)
        assert await backend.health() == expected
        await backend.aclose()
    assert not (await backend.health()).is_healthy
    await backend.aclose()


async def test_unreachable_means_nothing_was_sent() -> None:
    with refusing_port() as port:
        backend = OpenAICompatibleBackend("b", f"http://127.0.0.1:{port}/v1", None)
        with pytest.raises(ConnectFailed):
            await backend.open(make_call())
        await backend.aclose()


async def test_a_connection_that_is_never_accepted_means_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        address = deaf.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:  # fill the listen queue, from which nothing is accepted
            client.setblocking(False)
            client.connect_ex(address)
        backend = OpenAICompatibleBackend("b", f"http://127.0.0.1:{address[1]}/v1", None)
        with pytest.raises(ConnectFailed):
            await backend.open(make_call(timeouts=Timeouts(0.2, 10, 10)))
        await backend.aclose()
        for client in waiting:
            client.close()


async def test_an_operation_the_backend_lacks_is_refused_without_a_call() -> None:
    async with ScriptedProvider() as provider:
        backend = make_backend(provider, paths={"embeddings": "embeddings"})
        with pytest.raises(UpstreamRejected):
            await backend.open(make_call())
        await backend.aclose()
        assert provider.received == []


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "file:///etc/passwd", "//host/v1", "http://", "http://u:p@h/v1", "http://h/v1?k=1", "http://h#f"],
)
def test_base_urls_are_checked(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|credentials"):
        OpenAICompatibleBackend("b", url, None)


@pytest.mark.parametrize("key", ["sk-1\r\nx: y", "sk-é", "sk\x00"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_unseen(key: str) -> None:
    with pytest.raises(ValueError, match="authorization") as caught:
        OpenAICompatibleBackend("b", "http://h/v1", key)
    assert key not in str(caught.value)


async def test_an_error_is_never_shown_with_the_key() -> None:
    outcomes = [
        Outcome(fault=fault) for fault in ("auth", "rejected", "rate_limited", "unavailable", "reset", "garbage")
    ]
    async with ScriptedProvider(*outcomes) as provider:
        backend = make_backend(provider)
        for _ in outcomes:
            with pytest.raises(BackendError) as caught:
                await collect(backend, make_call(stream=False))
            assert KEY not in repr(vars(caught.value)) + repr(caught.value)


async def test_what_is_withheld_from_a_provider_is_in_no_response_either() -> None:
    async with ScriptedProvider() as provider:
        backend = make_backend(provider, paths=OPENAI_PATHS, dialect=dialect_of("openrouter"))
        with suppress(BackendError):  # it answers as a chat
            await collect(backend, Call("responses", "m", b'{"model":"m","models":["dear"],"store":1}', False, "r-1"))
        assert json.loads(provider.received[0].body) == {"model": "m", "store": 1}


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"input": "hi"}, [{"role": "user", "content": "hi"}]),
        ({"input": [{"role": "user", "content": "hi"}]}, [{"role": "user", "content": "hi"}]),
        ({"input": []}, []),
        ({"input": "hi", "previous_response_id": None}, None),
        ({"input": "hi", "instructions": None}, None),
        ({"input": None}, None),
    ],
)
async def test_xai_is_instructed_in_the_input_where_it_continues_a_response(
    asked: dict[str, object], sent: list[object] | None
) -> None:
    """It answers 400: "Argument not supported: instructions and previous_response_id together"."""
    body = {"model": "m", "instructions": "be brief", "previous_response_id": "r"} | asked
    async with ScriptedProvider() as provider:
        backend = make_backend(provider, paths=OPENAI_PATHS, dialect=dialect_of("xai"))
        with suppress(BackendError):  # it answers as a chat
            await collect(backend, Call("responses", "m", json.dumps(body).encode(), False, "r-1"))
        told = json.loads(provider.received[0].body)
    if sent is None:
        assert told == body
    else:
        system = {"role": "system", "content": "be brief"}
        assert told == {"model": "m", "previous_response_id": "r", "input": [system, *sent]}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", [b"background", b"b\\u0061ckground"])
async def test_a_response_in_the_background_is_refused_because_nobody_would_book_it(
    name: bytes, is_stream: bool
) -> None:
    """It continues after its stream is closed, and could then be fetched without being booked."""
    async with ScriptedProvider() as provider:
        backend = make_backend(provider, paths=OPENAI_PATHS)
        with pytest.raises(UpstreamRejected, match="background"):
            await collect(backend, Call("responses", "m", b'{"model":"m","%b":true}' % name, is_stream, "r-1"))
        assert not provider.received
