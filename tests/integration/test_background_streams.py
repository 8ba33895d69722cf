"""Streams in the background, through the official client: left, fetched again, cancelled, deleted."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseStreamEvent

from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.scripted import Outcome
from backends.translating import TranslatingBackend
from gateway.ledger.entry import Status
from tests.integration.slow_service import Slow
from tests.live_server import serving
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
STOPS_MIDWAY = Outcome(piece_delay_seconds=1.0)


@pytest.fixture
async def slow() -> AsyncGenerator[Slow]:
    made = Slow(STOPS_MIDWAY)
    async with serving(made.app) as url:
        made.url = url
        yield made
        made.may_answer.set()


async def begun(made: Slow, *, heard: int = 1) -> tuple[str, list[ResponseStreamEvent]]:
    """The id and first events of a stream whose caller then leaves."""
    async with made.client() as client:
        wanted: dict[str, Any] = {"model": "a", "input": "hello", "background": True}
        stream = await client.responses.create(stream=True, **wanted)
        events = [await anext(stream) for _ in range(heard)]
        first = events[0]
        assert first.type == "response.created"
        assert (first.response.status, first.response.background) == ("in_progress", True)
        return first.response.id, events


async def fetched(made: Slow, response_id: str, **asked: Any) -> list[ResponseStreamEvent]:
    async with made.client() as client, asyncio.timeout(60):
        return [event async for event in await client.responses.retrieve(response_id, stream=True, **asked)]


def numbers(events: list[ResponseStreamEvent]) -> list[int]:
    return [event.sequence_number for event in events]


def text_in(events: list[ResponseStreamEvent]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def test_who_leaves_fetches_the_rest_while_it_is_written_and_afterwards(slow: Slow) -> None:
    response_id, heard = await begun(slow, heard=3)
    live = asyncio.create_task(fetched(slow, response_id))
    resumed = asyncio.create_task(fetched(slow, response_id, starting_after=heard[-1].sequence_number))
    await asyncio.sleep(0.05)
    assert not slow.rig.ledger.entries, "its caller left, and it goes on"
    slow.may_answer.set()
    whole = await live
    assert numbers(whole) == list(range(len(whole)))
    assert heard + await resumed == whole
    assert text_in(whole) == "Hello, world."
    last = whole[-1]
    assert last.type == "response.completed"
    assert (last.response.id, last.response.background) == (response_id, True)
    assert last.response == await slow.finished(response_id)
    assert await fetched(slow, response_id, starting_after=4) == whole[5:]
    assert await fetched(slow, response_id, starting_after=99) == []
    assert (await slow.entry()).status is Status.completed


async def test_what_breaks_off_is_told_as_a_failure() -> None:
    made = Slow(Outcome(fault="reset", fault_after_pieces=2))
    async with serving(made.app) as made.url, made.client() as client:
        stream = await client.responses.create(model="a", input="hello", background=True, stream=True)
        heard = [event async for event in stream]
        last = heard[-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert "broke off" in last.response.error.message
        found = await client.responses.retrieve(last.response.id)
        assert (found.status, found.error) == ("failed", last.response.error)
        assert await fetched(made, last.response.id) == heard


async def test_what_has_no_events_is_refused(slow: Slow) -> None:
    slow.may_answer.set()
    unstreamed = await slow.begin()
    await slow.finished(unstreamed.id)
    async with slow.client() as client:
        plain = await client.responses.create(model="a", input="hello")
        for response_id in (unstreamed.id, plain.id):
            with pytest.raises(openai.BadRequestError, match="background: true and stream: true") as refused:
                await fetched(slow, response_id)
            assert refused.value.param == "stream"
        with pytest.raises(openai.NotFoundError):
            await fetched(slow, "resp_none")
        with pytest.raises(openai.BadRequestError, match="starting_after"):
            await fetched(slow, unstreamed.id, starting_after="x")


async def test_with_the_response_its_events_are_deleted(slow: Slow) -> None:
    response_id, _ = await begun(slow)
    kept = slow.rig.pipeline.kept_responses
    assert kept is not None
    slow.may_answer.set()
    whole = await fetched(slow, response_id)
    async with slow.client() as client:
        await client.responses.delete(response_id)
    with pytest.raises(openai.NotFoundError):
        await fetched(slow, response_id)
    assert len(whole) > 3
    assert not await kept.find_sealed("team:red", f"{response_id}\0events", 60.0)


async def test_a_provider_that_numbers_nothing_and_has_ids_of_its_own_is_told_as_ours() -> None:
    events = (
        b'event: response.created\ndata: {"type":"response.created","response":{"id":"theirs","store":false}}\n\n',
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"Hi"}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"theirs","object":"response",'
        b'"status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}\n\n',
    )
    made = Slow()
    answer = Raw(events, headers={"content-type": "text/event-stream"})
    async with ScriptedProvider(answer) as provider:
        backend = OpenAICompatibleBackend("one", provider.base_url, "provider-key", paths=OPENAI_PATHS)
        made.rig.pipeline.backends = {"one": TranslatingBackend(backend, native=OPENAI_PATHS), "two": made.rig.two}
        async with serving(made.app) as made.url:
            response_id, _ = await begun(made)
            whole = await fetched(made, response_id)
            assert (await made.finished(response_id)).status == "completed"
        await backend.aclose()
    assert numbers(whole) == [0, 1, 2]
    last = whole[-1]
    assert last.type == "response.completed"
    assert (last.response.id, last.response.background) == (response_id, True)
