"""Streams in the background whose events are fetched again, where the writer, its store or a caller fails."""

import asyncio
import json
from typing import Any

import pytest

from backends.endpoints.responses_items import ResponseHead
from gateway.errors import InvalidRequest
from gateway.kept_answers.background_callers import BackgroundStream
from gateway.kept_answers.kept_events import PAGE_BYTES, EventWriter, KeptEvents
from gateway.kept_answers.kept_turns import BRIEF_SECONDS
from gateway.kept_answers.open_responses import DEAD_SECONDS, Open
from gateway.kept_answers.resumed_stream import ResumedStream
from gateway.ledger.entry import Status
from tests.unit.gateway.kept_answers.background_rig import ACCEPTED, TENANT, Background
from tests.waiting import until


def parsed(events: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.partition(b"\ndata: ")[2]) for event in events.split(b"\n\n") if event]


class Streamed(Background):
    """One stream that has been told of, and waits before its first piece."""

    response_id = ""

    async def begun_stream(self, **asked: object) -> asyncio.Task[None]:
        task = self.begin(stream=True, **asked)
        await until(lambda: self.caller.sent and self.rig.one.calls)
        self.response_id = parsed(self.caller.body)[0]["response"]["id"]
        return task

    def resumed(self, last: int = -1) -> ResumedStream:
        return ResumedStream(self.opened, TENANT, self.response_id, last, look_seconds=0.0, patience_seconds=0.0)

    async def fetched(self) -> list[dict[str, Any]]:
        resumed = self.resumed()
        await resumed.require_events()
        return parsed(b"".join([event async for event in resumed.events()]))

    async def found(self) -> dict[str, Any]:
        found = await self.opened.find(TENANT, self.response_id)
        assert found is not None
        return json.loads(found)


async def test_it_is_cancelled_by_the_id_that_its_first_event_tells() -> None:
    made = Streamed()
    task = await made.begun_stream()
    await made.opened.cancel(TENANT, made.response_id)
    await task
    heard = parsed(made.caller.body)
    assert [(one["type"], one["sequence_number"]) for one in heard] == [("response.created", 0), ("response.failed", 1)]
    assert (heard[-1]["response"]["status"], heard[-1]["response"]["output"]) == ("cancelled", [])
    assert heard == await made.fetched()
    assert made.rig.entry.status is Status.cancelled


async def test_whoever_cancelled_it_is_not_told_of_an_answer_that_came_before_its_writer_noticed() -> None:
    made = Streamed(look_seconds=60.0)
    task = await made.begun_stream()
    await made.opened.cancel(TENANT, made.response_id)
    made.may_answer.set()
    await task
    assert [one["type"] for one in parsed(made.caller.body)][-1] == "response.failed"
    assert (await made.found())["status"] == "cancelled"


async def test_a_worker_that_stops_tells_the_streams_end() -> None:
    made = Streamed()
    task = await made.begun_stream()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    last = (await made.fetched())[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert "Ask again" in last["response"]["error"]["message"]


async def test_whose_worker_is_dead_is_told_as_failed() -> None:
    made = Streamed(look_seconds=60.0)
    task = await made.begun_stream()
    made.now += DEAD_SECONDS + 1
    first, last = await made.fetched()
    assert (first["type"], last["type"], last["sequence_number"]) == ("response.created", "response.failed", 1)
    assert last["response"]["status"] == "failed"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_was_deleted_meanwhile_leaves_no_events() -> None:
    made = Streamed()
    task = await made.begun_stream()
    await made.opened.delete(TENANT, made.response_id, is_open=True)
    made.may_answer.set()
    await task
    with pytest.raises(InvalidRequest, match="no events"):
        await made.fetched()


@pytest.mark.parametrize(("store", "is_there"), [(False, False), (True, True), (None, True)])
async def test_what_is_not_to_be_stored_is_gone_ten_minutes_after_it_was_last_fetched(
    store: bool | None, *, is_there: bool
) -> None:
    made = Streamed()
    task = await made.begun_stream(store=store)
    made.may_answer.set()
    await task
    made.store.now += BRIEF_SECONDS - 1
    assert (await made.found())["store"] is is_there
    made.store.now += BRIEF_SECONDS - 1
    assert (await made.found())["status"] == "completed"
    made.store.now += BRIEF_SECONDS + 1
    assert (await made.opened.find(TENANT, made.response_id) is not None) is is_there
    assert (await made.opened.events(TENANT, made.response_id).head() is not None) is is_there


async def test_events_that_cannot_be_kept_at_once_are_kept_later() -> None:
    made = Streamed()
    task = await made.begun_stream()
    made.store.is_down = True
    made.may_answer.set()
    async with asyncio.timeout(60):
        while not made.store.refused:
            await asyncio.sleep(0)
    made.store.is_down = False
    await task
    assert parsed(made.caller.body) == await made.fetched()
    assert (await made.found())["status"] == "completed"


async def test_a_used_up_budget_ends_it_incomplete_for_whoever_fetches_it_too() -> None:
    made = Streamed()
    made.response_id = "resp_1"
    response = Open(TENANT, ResponseHead("resp_1", 1, {"model": "a", "background": True}), ACCEPTED)
    await made.opened.open(response)
    stream = BackgroundStream(made.caller, made.opened)
    await stream.begin(response)
    await stream.send(b'event: response.incomplete\ndata: {"type":"response.incomplete"}\n\n', is_last=True)
    await stream.end(await made.opened.close(response, stream.outcome, stream.why))
    last = parsed(made.caller.body)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"] == await made.found()


async def kept(events: KeptEvents, sizes: list[int], *, most_bytes: int = 1 << 30) -> None:
    """Events of these sizes, written one by one; the last one ends the stream."""
    writer = EventWriter(events, most_bytes=most_bytes)
    for number, size in enumerate(sizes):
        writer.add(number, b"event: e\ndata: {}" + b" " * size + b"\n\n", is_end=number == len(sizes) - 1)
        await writer.write()


async def test_the_pages_of_a_long_stream_are_read_from_where_a_reader_stopped() -> None:
    made = Streamed()
    events = made.opened.events(TENANT, "resp_1")
    await kept(events, [PAGE_BYTES // 3] * 10)
    head = await events.head()
    assert head is not None
    assert (head.firsts, len(head.newest), head.last, head.is_ended) == ([0, 3, 6], 1, 9, True)
    for last in range(-1, 11):
        assert [number async for number, _ in events.after(last, head)] == list(range(last + 1, 10))
    await made.kept.forget(TENANT, "resp_1\0events 1")
    assert [number async for number, _ in events.after(5, head)] == [6, 7, 8, 9], "what is gone was read before"
    made.response_id = "resp_1"
    told = await made.fetched()
    assert "not kept" in told[-1]["message"]
    await events.forget()
    assert not made.store.names


async def test_what_is_too_long_to_keep_says_so_where_it_is_cut() -> None:
    made = Streamed()
    await kept(made.opened.events(TENANT, "resp_1"), [100] * 10, most_bytes=500)
    made.response_id = "resp_1"
    *events, last = await made.fetched()
    assert 0 < len(events) < 10
    assert (last["type"], last["sequence_number"]) == ("error", len(events) - 1)
    assert "the first 32 MB of each stream" in last["message"]


async def test_whose_store_is_down_is_told_after_a_while() -> None:
    made = Streamed()
    task = await made.begun_stream()
    made.store.is_unreadable = True
    [told] = parsed(b"".join([event async for event in made.resumed(0).events()]))
    assert "Try again" in told["message"]
    made.store.is_unreadable = False
    made.may_answer.set()
    await task
