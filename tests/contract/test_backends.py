"""The contract of all backends, checked for each adapter with the same tests: the scripted one in memory, the real ones
through a server that speaks their wire format."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from msgspec.structs import replace

from backends.anthropic import AnthropicBackend
from backends.errors import (
    BackendError,
    ConnectFailed,
    RateLimited,
    StreamBroken,
    StreamStalled,
    UnreadableAnswer,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.gemini import GeminiBackend
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Backend, Call, Chunk, Reply, Timeouts
from backends.scripted import Fault, Outcome, ScriptedBackend, follow
from backends.usage import Usage
from tests.contract.calls import PATIENT, make_call, text_of
from tests.ports import refusing_port
from tests.read_stream import collect
from tests.scripted_provider import ScriptedProvider

Make = Callable[..., Awaitable[Backend]]
HASTY = Timeouts(first_byte_seconds=0.3)
RESTLESS = Timeouts(idle_seconds=0.5)
"""Only for answers that never come: with short timeouts, a busy machine would make any answer look silent."""
PIECES = ("Hello", ", ", "world", ".")


async def _scripted(*outcomes: Outcome) -> AsyncIterator[Backend]:
    yield ScriptedBackend("under-test", follow(outcomes), sleep=lambda seconds: asyncio.sleep(min(seconds, 0.001)))


def _through_server(build: Callable[[str], Backend]) -> Callable[..., AsyncIterator[Backend]]:
    async def adapter(*outcomes: Outcome) -> AsyncIterator[Backend]:
        async with ScriptedProvider(*outcomes) as provider:
            is_unreachable = bool(outcomes) and outcomes[0].fault == "unreachable"
            with refusing_port() as refusing:
                backend = build(f"http://127.0.0.1:{refusing}" if is_unreachable else provider.origin)
                yield backend
                await backend.aclose()

    return adapter


class _AnswersNoChats(OpenAICompatibleBackend):
    """An adapter whose model must be called over the Responses API."""

    def __init__(self, name: str, base_url: str, key: str) -> None:
        super().__init__(name, base_url, key, paths=OPENAI_PATHS)

    async def open(self, call: Call) -> Reply:
        return await super().open(replace(call, upstream_model="gpt-5-pro"))


ADAPTERS: dict[str, Callable[..., AsyncIterator[Backend]]] = {
    "scripted": _scripted,
    "openai_compatible": _through_server(
        lambda origin: OpenAICompatibleBackend("under-test", f"{origin}/v1", "sk-test")
    ),
    "openai_over_responses": _through_server(lambda origin: _AnswersNoChats("under-test", f"{origin}/v1", "sk-test")),
    "anthropic": _through_server(lambda origin: AnthropicBackend("under-test", f"{origin}/v1", "sk-test")),
    "gemini": _through_server(lambda origin: GeminiBackend("under-test", f"{origin}/v1beta", "sk-test")),
}


@pytest.fixture(params=ADAPTERS)
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    opened: list[AsyncIterator[Backend]] = []

    async def build(*outcomes: Outcome) -> Backend:
        adapter = ADAPTERS[request.param](*outcomes)
        opened.append(adapter)
        return await anext(adapter)

    yield build
    for adapter in opened:
        with pytest.raises(StopAsyncIteration):
            await anext(adapter)


async def collect_until_error(backend: Backend, call: Call) -> tuple[list[Chunk], BackendError]:
    chunks: list[Chunk] = []
    try:
        reply = await backend.open(call)
        try:
            async for chunk in reply:
                chunks.append(chunk)  # noqa: PERF401 (what came before the error matters)
        finally:
            await reply.aclose()
    except BackendError as error:
        return chunks, error
    raise AssertionError("the call ended without an error")


async def hurried_error(backend: Backend, call: Call) -> tuple[list[Chunk], BackendError]:
    """The error of a call with short timeouts that reached the backend: a busy machine may be late even to connect."""
    while True:
        chunks, error = await collect_until_error(backend, call)
        if type(error) is not ConnectFailed or call.timeouts is PATIENT:
            return chunks, error


async def test_a_stream_carries_the_text_the_finish_and_the_usage(make: Make) -> None:
    backend = await make(Outcome(pieces=PIECES, usage=Usage(input_tokens=12, cached_input_tokens=5, output_tokens=4)))
    chunks = await collect(backend, make_call())
    assert text_of(chunks) == "Hello, world."
    assert sum(chunk.output_characters for chunk in chunks) == len("Hello, world.")
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    assert [(u.input_tokens, u.cached_input_tokens, u.output_tokens) for c in chunks if (u := c.usage)][-1] == (
        12,
        5,
        4,
    )
    assert [chunk.is_done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].payload == b"data: [DONE]\n\n"


async def test_every_payload_is_whole_events_or_empty(make: Make) -> None:
    chunks = await collect(await make(Outcome(pieces=PIECES)), make_call(wants_usage=False))
    for chunk in chunks:
        events = chunk.payload.split(b"\n\n")
        assert events.pop() == b""
        assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)


async def test_the_first_output_is_where_the_text_begins(make: Make) -> None:
    chunks = await collect(await make(Outcome(pieces=PIECES)), make_call())
    spoken = [chunk for chunk in chunks if chunk.has_output]
    assert spoken == [chunk for chunk in chunks if text_of([chunk])]
    assert sum(chunk.output_characters for chunk in spoken) == len("".join(PIECES))


async def test_usage_is_metered_but_hidden_from_a_caller_who_did_not_ask(make: Make) -> None:
    chunks = await collect(await make(Outcome()), make_call(wants_usage=False))
    assert any(chunk.usage for chunk in chunks)
    assert not any(b'"usage"' in chunk.payload for chunk in chunks)


async def test_usage_is_shown_to_a_caller_who_asked(make: Make) -> None:
    chunks = await collect(await make(Outcome()), make_call(wants_usage=True))
    assert any(b'"usage"' in chunk.payload and chunk.usage for chunk in chunks)


async def test_missing_usage_is_none_and_never_zero(make: Make) -> None:
    for stream in (True, False):
        chunks = await collect(await make(Outcome(usage=None)), make_call(stream=stream))
        assert all(chunk.usage is None for chunk in chunks)


async def test_a_plain_answer_is_one_chunk(make: Make) -> None:
    [chunk] = await collect(await make(Outcome(pieces=PIECES)), make_call(stream=False))
    document = msgspec.json.decode(chunk.payload)
    assert document["choices"][0]["message"]["content"] == "Hello, world."
    assert chunk.is_done
    assert chunk.has_output
    assert chunk.finish_reason == "stop"
    assert chunk.usage
    assert (chunk.usage.input_tokens, chunk.usage.output_tokens) == (12, 4)


async def test_content_types(make: Make) -> None:
    backend = await make(Outcome())
    for stream, expected in ((True, "text/event-stream"), (False, "application/json")):
        reply = await backend.open(make_call(stream=stream))
        assert reply.content_type == expected
        await reply.aclose()


REFUSALS: list[tuple[Fault, type[BackendError], bool]] = [
    ("rate_limited", RateLimited, True),
    ("unavailable", UpstreamUnavailable, True),
    ("overloaded", UpstreamUnavailable, True),
    ("auth", UpstreamAuth, True),
    ("rejected", UpstreamRejected, False),
    ("unreachable", ConnectFailed, True),
    ("silent", UpstreamTimeout, True),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fault", "kind", "is_retryable"), REFUSALS)
async def test_a_refusal_is_raised_by_its_kind(
    make: Make, fault: Fault, kind: type[BackendError], is_retryable: bool, stream: bool
) -> None:
    backend = await make(Outcome(fault=fault))
    timeouts = HASTY if fault == "silent" else PATIENT
    chunks, error = await hurried_error(backend, make_call(stream=stream, timeouts=timeouts))
    assert not chunks
    assert type(error) is kind
    assert error.is_retryable is is_retryable
    assert "under-test" in error.message


async def test_retry_after_is_reported(make: Make) -> None:
    _, error = await collect_until_error(await make(Outcome(fault="rate_limited", retry_after_seconds=7)), make_call())
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 7
    _, error = await collect_until_error(await make(Outcome(fault="overloaded", retry_after_seconds=2.5)), make_call())
    assert isinstance(error, UpstreamUnavailable)
    assert (error.status, error.retry_after_seconds) == (529, 2.5)


async def test_a_rejection_carries_an_openai_error_for_the_caller(make: Make) -> None:
    _, error = await collect_until_error(await make(Outcome(fault="rejected")), make_call())
    assert isinstance(error, UpstreamRejected)
    assert error.status == 400
    assert set(msgspec.json.decode(error.body)["error"]) >= {"message", "type"}


BREAKS: list[Fault] = ["reset", "truncated", "stalled", "error_event", "garbage"]
UNANSWERED: dict[Fault, type[BackendError]] = {
    "reset": UnreadableAnswer,
    "truncated": UnreadableAnswer,
    "stalled": UpstreamTimeout,
    "error_event": UpstreamUnavailable,  # the provider itself reports the failure
    "garbage": UnreadableAnswer,
}
"""The error for each break before there is anything to pass on, which decides whether it may be billed."""


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_break_before_the_first_chunk_may_be_tried_elsewhere(make: Make, fault: Fault) -> None:
    timeouts = HASTY if fault == "stalled" else PATIENT
    chunks, error = await hurried_error(await make(Outcome(fault=fault)), make_call(timeouts=timeouts))
    assert not chunks
    assert type(error) is UNANSWERED[fault]
    assert error.is_retryable


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_break_after_the_first_chunk_is_final_and_never_a_clean_end(make: Make, fault: Fault) -> None:
    backend = await make(Outcome(pieces=PIECES, fault=fault, fault_after_pieces=2))
    timeouts = RESTLESS if fault == "stalled" else PATIENT
    chunks, error = await collect_until_error(backend, make_call(timeouts=timeouts))
    assert text_of(chunks) == "Hello, "
    assert type(error) is (StreamStalled if fault == "stalled" else StreamBroken)
    assert not error.is_retryable
    assert not any(chunk.is_done or b"[DONE]" in chunk.payload for chunk in chunks)


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_plain_answer_that_breaks_may_be_tried_elsewhere(make: Make, fault: Fault) -> None:
    backend = await make(Outcome(pieces=PIECES, fault=fault, fault_after_pieces=2))
    timeouts = RESTLESS if fault == "stalled" else PATIENT
    chunks, error = await collect_until_error(backend, make_call(stream=False, timeouts=timeouts))
    assert not chunks
    assert type(error) is UNANSWERED[fault]


async def test_closing_twice_and_early_is_harmless(make: Make) -> None:
    backend = await make(Outcome(pieces=("word ",) * 50, piece_delay_seconds=0.01))
    reply = await backend.open(make_call())
    async for chunk in reply:
        if chunk.has_output:
            break
    await reply.aclose()
    await reply.aclose()
    assert text_of(await collect(backend, make_call())) == "word " * 50


async def test_outcomes_do_not_mix_under_concurrency(make: Make) -> None:
    backend = await make(*(Outcome(pieces=(f"answer {number}",)) for number in range(20)))
    answers = await asyncio.gather(*(collect(backend, make_call()) for _ in range(20)))
    assert sorted(text_of(chunks) for chunks in answers) == sorted(f"answer {number}" for number in range(20))


async def test_health_never_raises(make: Make) -> None:
    assert (await (await make(Outcome())).health()).is_healthy


async def test_it_has_a_name_and_says_whether_it_is_simulated(make: Make) -> None:
    backend = await make(Outcome())
    assert backend.name == "under-test"
    assert backend.is_simulated is isinstance(backend, ScriptedBackend)
