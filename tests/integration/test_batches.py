"""Batches through the official client: all parts of a gateway over SQLite, in front of scripted backends."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from backends.protocol import BackendHealth, Call
from backends.scripted import Outcome, follow
from gateway.batches.asking import MOST_FAILURES
from gateway.composition.batches import open_batches
from gateway.routing.fallback import RetryPolicy
from tests.integration.batch_service import (
    BOUNDS,
    CHATS,
    Batches,
    begun,
    briefly,
    counts,
    hold,
    lapse,
    lines,
    nothing_new,
    opened,
    request,
    until,
    until_heard,
)

pytestmark = pytest.mark.integration


async def test_a_file_of_requests_is_answered_in_a_file(batches: Batches) -> None:
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n) for n in range(1, 21)), metadata={"job": "nightly"})
        assert (batch.status, batch.endpoint, batch.completion_window) == ("validating", CHATS, "24h")
        done = await until(client, batch)
        answers = await lines(client, done.output_file_id)
        written = await client.files.retrieve(done.output_file_id or "")
        content = (await client.files.content(written.id)).content

    assert (done.status, done.metadata, done.error_file_id, done.errors) == (
        "completed",
        {"job": "nightly"},
        None,
        None,
    )
    assert counts(done) == (20, 20, 0)
    assert [one["custom_id"] for one in answers] == [f"request-{n}" for n in range(1, 21)], "in the order of the file"
    assert {one["response"]["body"]["choices"][0]["message"]["content"] for one in answers} == {"Hello, world."}
    assert (written.bytes, written.purpose, written.filename) == (
        len(content),
        "batch_output",
        f"{done.id}_output.jsonl",
    )

    entries = batches.rig.ledger.entries
    assert {one["response"]["request_id"] for one in answers} == {one.intent.request_id for one in entries}
    assert {one.intent.tags for one in entries} == {("base", "batch")}
    assert {(one.intent.key_id, one.intent.team) for one in entries} == {("key-1", "red")}
    assert {one.intent.batch_id for one in entries} == {done.id}
    usage = done.to_dict()["usage"]
    assert usage == {
        "input_tokens": 20 * 12,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20 * 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 20 * 16,
    }
    cost = sum(one.cost.total_pico_usd for one in entries if one.cost is not None)
    told = done.to_dict()["x_breakeven"]
    assert told == {"cost_usd": f"{cost / 1e12:.12f}", "answers_without_price": 0}


async def test_what_failed_is_in_a_file_of_its_own(tmp_path: Path) -> None:
    def answer(call: Call) -> Outcome:
        return Outcome(fault="rejected") if b"hello 2" in call.body else Outcome()

    async with opened(tmp_path, answer) as batches, batches.client() as client, batches.working():
        batch = await begun(client, request(1), request(2), request(3, model="nobody"), request(4))
        done = await until(client, batch)
        good, bad = await lines(client, done.output_file_id), await lines(client, done.error_file_id)
        [kept] = await batches.stores.batches.recent(9, tenant="team red")
        assert not await batches.stores.batches.recent(9, tenant="team blue")
    assert kept.progress.models == ("a",), "that answered"
    assert counts(done) == (4, 2, 2)
    assert [one["custom_id"] for one in good] == ["request-1", "request-4"]
    assert [(one["custom_id"], one["response"]["status_code"]) for one in bad] == [
        ("request-2", 400),
        ("request-3", 404),
    ]
    assert "does not exist" in bad[1]["response"]["body"]["error"]["message"]


async def test_what_only_time_can_mend_is_asked_again(tmp_path: Path) -> None:
    """A failing upstream, and a rate limit of the key."""
    script = follow([Outcome(fault="unavailable")] * 4 + [Outcome()])
    async with opened(tmp_path, script) as batches:
        batches.rig.pipeline.retry_policy = RetryPolicy(max_attempts=1)
        async with batches.client() as client, batches.working():
            done = await until(client, await begun(client, request(1)))
            [answer] = await lines(client, done.output_file_id)
    assert counts(done) == (1, 1, 0)
    assert answer["response"]["status_code"] == 200


async def test_an_upstream_that_goes_on_failing_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, follow([Outcome(fault="unavailable")])) as batches:
        batches.rig.pipeline.retry_policy = RetryPolicy(max_attempts=1)
        async with batches.client() as client, batches.working():
            done = await until(client, await begun(client, request(1)))
            [failed] = await lines(client, done.error_file_id)
    assert failed["response"]["status_code"] == 502
    assert len(batches.rig.ledger.entries) == MOST_FAILURES
    assert {one.intent.batch_id for one in batches.rig.ledger.entries} == {done.id}, "what was asked again costs too"


async def test_a_file_that_is_no_batch_fails_and_says_where(batches: Batches) -> None:
    async with batches.client() as client, batches.working():
        batch = await begun(client, request(1), request(1), request(2) | {"url": "/v1/embeddings"})
        failed = await until(client, batch, lambda one: one.status == "failed")
    assert failed.errors is not None
    assert [(one.line, one.code) for one in failed.errors.data or []] == [
        (2, "duplicate_custom_id"),
        (3, "invalid_url"),
    ]
    assert not batches.rig.ledger.entries
    assert (failed.output_file_id, failed.failed_at is not None) == (None, True)


async def test_a_cancelled_batch_keeps_what_was_answered(batches: Batches) -> None:
    held = hold(batches, 8)
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n) for n in range(1, 51)))
        await until(client, batch, lambda one: counts(one) == (50, 8, 0) and held.waiting == BOUNDS.at_once)
        with pytest.raises(openai.ConflictError, match="still reads this file"):
            await client.files.delete(batch.input_file_id)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        await until_heard(batches)
        held.goes_on.set()
        done = await until(client, batch, lambda one: one.cancelled_at is not None)
        assert done.status == (await client.batches.cancel(batch.id)).status == "cancelled"
        assert len(await lines(client, done.output_file_id)) == 8 + BOUNDS.at_once, "those under way were let end"
        await client.files.delete(batch.input_file_id)
    assert len(batches.rig.ledger.entries) == 8 + BOUNDS.at_once


async def test_another_process_goes_on_where_one_stopped(batches: Batches) -> None:
    held = hold(batches, 8)
    async with batches.client() as client:
        async with batches.working():
            batch = await begun(client, *(request(n) for n in range(1, 21)))
            await until(client, batch, lambda one: counts(one) == (20, 8, 0) and held.waiting == BOUNDS.at_once)
            stopping = asyncio.create_task(batches.runner.stop(60.0))
            await asyncio.sleep(0)  # from now on it starts no further line
            held.goes_on.set()
            await stopping
        stopped = await client.batches.retrieve(batch.id)
        assert (stopped.status, *counts(stopped)) == ("in_progress", 20, 12, 0)
        batches.runner = open_batches(
            batches.rig.pipeline, batches.stores, BOUNDS, nothing_new, name="second", clock=batches.clock, sleep=briefly
        )
        async with batches.working():
            done = await until(client, batch)
            answers = await lines(client, done.output_file_id)
    assert counts(done) == (20, 20, 0)
    assert [one["custom_id"] for one in answers] == [f"request-{n}" for n in range(1, 21)]
    assert len(batches.rig.ledger.entries) == 20, "none was asked twice"


async def test_whoever_was_not_heard_of_stops_and_what_it_had_stored_stays(batches: Batches) -> None:
    held = hold(batches, 8)
    async with batches.client() as client:
        batch = await begun(client, *(request(n) for n in range(1, 21)))
        async with batches.working() as looking:
            await until(client, batch, lambda one: counts(one) == (20, 8, 0) and held.waiting == BOUNDS.at_once)
            unheard = batches.runner
            looking.cancel()  # otherwise it might find the batch before the other one does
            await asyncio.wait([looking])
            batches.runner = open_batches(
                batches.rig.pipeline,
                batches.stores,
                BOUNDS,
                nothing_new,
                name="second",
                clock=batches.clock,
                sleep=briefly,
            )
            await lapse(batches)
            async with batches.working():
                await until(client, batch, lambda one: held.waiting > BOUNDS.at_once)
                held.goes_on.set()
                done = await until(client, batch)
            await unheard.stop(10.0)
        answers = await lines(client, done.output_file_id)
    assert counts(done) == (20, 20, 0)
    assert [one["custom_id"] for one in answers] == [f"request-{n}" for n in range(1, 21)]


async def test_what_is_not_answered_in_time_expires(batches: Batches) -> None:
    held = hold(batches, 6)
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n) for n in range(1, 16)), completion_window="1h")
        await until(client, batch, lambda one: counts(one) == (15, 6, 0) and held.waiting == BOUNDS.at_once)
        batches.hours_later(1)
        done = await until(client, batch, lambda one: one.expired_at is not None)
        good, late = await lines(client, done.output_file_id), await lines(client, done.error_file_id)
    assert counts(done) == (15, 6, 9)
    assert len(good) == 6
    assert {one["error"]["code"] for one in late} == {"batch_expired"}
    assert sorted(one["custom_id"] for one in good + late) == sorted(f"request-{n}" for n in range(1, 16))
    assert not batches.rig.ledger.open, "what was under way is booked"


async def test_a_clock_that_is_a_day_ahead_for_a_moment_makes_no_line_late(batches: Batches) -> None:
    """Being late is final: every line of every batch used to be lost, even those in progress and paid for."""
    held = hold(batches, 6)
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n) for n in range(1, 16)), completion_window="1h")
        await until(client, batch, lambda one: counts(one) == (15, 6, 0) and held.waiting == BOUNDS.at_once)
        batches.put_clock(hours_ahead=24)
        await until_heard(batches)
        held.goes_on.set()
        await until(client, batch, lambda one: counts(one)[1:] != (6, 0))
        batches.put_clock(hours_ahead=0)
        done = await until(client, batch, lambda one: bool(one.completed_at or one.expired_at))
    assert (done.status, *counts(done)) == ("completed", 15, 15, 0)


async def test_another_team_finds_nothing(batches: Batches) -> None:
    async with batches.client() as client, batches.client("bk-mate") as mate, batches.client("bk-other") as other:
        async with batches.working():
            done = await until(client, await begun(client, request(1)))
        assert (await mate.batches.retrieve(done.id)).id == done.id
        assert [one.id async for one in mate.batches.list()] == [done.id]
        assert await lines(mate, done.output_file_id)
        assert not [one async for one in other.batches.list()]
        assert not [one async for one in other.files.list()]
        for refused in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError, match="no such batch"):
                await refused(done.id)
        for wanted in (other.files.retrieve, other.files.delete, other.files.content):
            with pytest.raises(openai.NotFoundError, match="no such file"):
                await wanted(done.input_file_id)
        with pytest.raises(openai.BadRequestError, match="no such file"):
            await other.batches.create(input_file_id=done.input_file_id, endpoint=CHATS, completion_window="24h")


async def test_a_key_that_is_revoked_meanwhile_asks_no_more(batches: Batches) -> None:
    held = hold(batches, 4)
    rig = batches.rig
    async with batches.client() as client, batches.client("bk-mate") as mate, batches.working():
        batch = await begun(client, *(request(n) for n in range(1, 11)))
        await until(client, batch, lambda one: counts(one) == (10, 4, 0) and held.waiting == BOUNDS.at_once)
        rig.records = {
            key: replace(one, revoked_at_us=1) if one.id == "key-1" else one for key, one in rig.records.items()
        }
        rig.pipeline.keys.replace(rig.records)
        held.goes_on.set()
        done = await until(mate, batch)
        failed = await lines(mate, done.error_file_id)
    assert counts(done) == (10, 8, 2)
    assert {one["response"]["status_code"] for one in failed} == {401}


async def test_lists_come_in_pages(batches: Batches) -> None:
    async with batches.client() as client:
        made = [await begun(client, request(number)) for number in range(5)]
        assert [one.id async for one in client.batches.list(limit=2)] == [one.id for one in reversed(made)]
        files = [one.input_file_id for one in made]
        assert [one.id async for one in client.files.list(limit=2, order="asc")] == files
        assert [one.id async for one in client.files.list(limit=2)] == files[::-1]
        assert not [one async for one in client.files.list(purpose="batch_output")]
        page = await client.batches.list(limit=2)
        assert page.has_more


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"endpoint": "/v1/messages"}, "endpoint: must be one of /v1/chat/completions"),
        ({"completion_window": "1d"}, "completion_window: must be 24h"),
        ({"completion_window": "169h"}, "up to 168h"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"extra_headers": {"x-breakeven-tags": "a" * 65}}, "x-breakeven-tags"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused(batches: Batches, said: dict[str, Any], says: str) -> None:
    async with batches.client() as client:
        with pytest.raises(openai.BadRequestError, match=says):
            await begun(client, request(1), **said)


async def test_where_batches_are_off_it_is_said(tmp_path: Path) -> None:
    off = msgspec.structs.replace(BOUNDS, at_once=0)
    async with opened(tmp_path, bounds=off) as batches, batches.client() as client:
        with pytest.raises(openai.PermissionDeniedError, match=r"batches\.at_once is 0"):
            await client.files.create(file=("a", b"x"), purpose="batch")


async def test_requests_that_can_wait_leave_slots_to_others(batches: Batches) -> None:
    """An engine with three slots gets two lines, which leaves one slot free. A more expensive model is not used."""
    rig, held = batches.rig, hold(batches, 0)
    rig.pipeline.upstreams.note_health("one", BackendHealth(True, free_slots=3, running_requests=0))
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n, model="auto") for n in range(1, 5)))
        await until(client, batch, lambda one: held.waiting == 2)
        await asyncio.sleep(0.3)
        assert (held.waiting, rig.two.calls) == (2, [])
        assert (batches.runner.batches_under_way, batches.runner.lines_under_way) == (1, 2)
        rig.pipeline.upstreams.note_health("one", BackendHealth(True, free_slots=10, running_requests=2))
        held.goes_on.set()
        done = await until(client, batch)
    assert counts(done) == (4, 4, 0)
    assert rig.two.calls == []


async def test_a_batch_waits_no_longer_than_it_has_time(batches: Batches) -> None:
    rig = batches.rig
    rig.pipeline.upstreams.note_health("one", BackendHealth(True, free_slots=0, running_requests=3))
    async with batches.client() as client, batches.working():
        batch = await begun(client, *(request(n, model="auto") for n in range(1, 5)))
        await until(client, batch, lambda one: one.status == "in_progress")
        await asyncio.sleep(0.3)
        assert not rig.ledger.entries
        batches.hours_later(21)
        await asyncio.sleep(0.3)
        assert not rig.ledger.entries
        batches.hours_later(1)  # the last tenth of the window has begun
        assert counts(await until(client, batch)) == (4, 4, 0)
