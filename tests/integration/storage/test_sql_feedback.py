"""Feedback is read back as it was written, in order, on both databases."""

import asyncio

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only

from gateway.economics.replay.outcome import ShadowPair
from gateway.kept_answers.response_cache import BACKEND as RESPONSE_CACHE
from gateway.ledger.entry import JUDGE, SHADOW, Status
from gateway.storage.sql.feedback import SqlFeedback
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.stores import Feedback, ShadowCall
from gateway.sums import SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id

pytestmark = pytest.mark.integration


def make_feedback(number: int, **given: object) -> Feedback:
    fields: dict[str, object] = {
        "request_id": request_id(number),
        "at_us": number,
        "kind": "score",
        "score": 0.5,
        "source": "caller",
        "key_id": "key-1",
    }
    return Feedback(**{**fields, **given})  # pyright: ignore[reportArgumentType]


async def test_a_learner_goes_on_where_it_stopped(engine: AsyncEngine) -> None:
    store = SqlFeedback(engine)
    await store.add([])
    assert (await store.after(0), await store.newest()) == ([], 0)
    await store.add([make_feedback(1, comment="wrong \u4f60"), make_feedback(2, kind="label", score=1.0)])
    [first] = await store.after(0, limit=1)
    assert (first.request_id, first.comment, first.score) == (request_id(1), "wrong \u4f60", 0.5)
    [second] = await store.after(first.number)
    assert (second.kind, second.score, second.source) == ("label", 1.0, "caller")
    assert (await store.after(second.number), await store.newest()) == ([], second.number)


async def test_a_learner_passes_over_no_feedback_that_is_just_being_stored(engine: AsyncEngine) -> None:
    """Its number was given, and a later one committed first."""
    store, is_stored, may_go = SqlFeedback(engine), asyncio.Event(), asyncio.Event()

    def hold(_: Connection) -> None:
        is_stored.set()
        await_only(may_go.wait())

    event.listen(engine.sync_engine, "commit", hold, once=True)
    first = asyncio.create_task(store.add([make_feedback(1)]))
    await is_stored.wait()
    second = asyncio.create_task(store.add([make_feedback(2)]))
    await asyncio.wait({second}, timeout=0.05)
    seen = [*await store.after(0)]
    may_go.set()
    await asyncio.gather(first, second)
    seen += await store.after(max((one.number for one in seen), default=0))
    assert [one.request_id for one in seen] == [request_id(1), request_id(2)]


async def test_opinions_change_and_nothing_is_forgotten(engine: AsyncEngine) -> None:
    store = SqlFeedback(engine)
    await store.add([make_feedback(1, score=0.0), make_feedback(2), make_feedback(1, score=1.0, at_us=9)])
    assert [one.score for one in await store.after(0) if one.request_id == request_id(1)] == [0.0, 1.0]


async def test_a_shadow_call_is_kept_once(engine: AsyncEngine) -> None:
    store = SqlFeedback(engine)
    calls = [ShadowCall(request_id(n), request_id(n + 100), n, 0.125) for n in (1, 2, 3)]
    for call in (*calls, calls[0]):
        await store.add_shadow(call)
    assert await store.shadows(0, 10) == calls
    assert await store.shadows(2, 3) == [calls[1]]


async def test_what_no_chat_model_answers_a_caller_is_in_the_books_and_nobodys_traffic(engine: AsyncEngine) -> None:
    at_us = 1_767_225_600_000_000
    shadow = make_intent(2, accepted_at_us=at_us, operation=SHADOW, key_id=SHADOW, team=None)
    judge = make_intent(7, accepted_at_us=at_us, operation=JUDGE, key_id=JUDGE, team=None)
    embedding = make_intent(3, accepted_at_us=at_us, operation="embeddings")
    intents = {1: make_intent(1, accepted_at_us=at_us), 2: shadow, 3: embedding, 7: judge}
    entries = [make_entry(number, intent=intent, gpu_seconds=0.5) for number, intent in intents.items()]
    hosted = make_entry(4, intent=make_intent(4, accepted_at_us=at_us), backend="elsewhere")
    cached = make_entry(5, intent=make_intent(5, accepted_at_us=at_us), backend=RESPONSE_CACHE)
    nothing = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "is_usage_estimated": True}
    failed = make_entry(6, intent=make_intent(6, accepted_at_us=at_us), status=Status.failed, **nothing)
    await SqlLedger(engine).insert([*entries, hosted, cached, failed])
    reports = SqlReports(engine)
    until_us = at_us + 3_600_000_000
    [row] = await reports.hourly_traffic(at_us, until_us)
    assert row.requests == 2, "no chat model embeds, or computes what the response cache has or nobody answered"
    assert (row.estimated_requests, row.cost_pico_usd) == (0, 3 * 243_000_000), "what an unanswered one cost is booked"
    [on_gpus] = await reports.hourly_traffic(at_us, until_us, on_gpus=True)
    assert (on_gpus.requests, on_gpus.gpu_seconds) == (4, 2.0)
    [apart] = await reports.sums(SumsQuery(at_us, until_us, (), {"operation": SHADOW}))
    assert apart.requests == 1


async def test_lengths_are_compared_where_both_models_answered_whole(engine: AsyncEngine) -> None:
    store = SqlFeedback(engine)
    shown = [make_entry(n, input_tokens=100 * n, output_tokens=10) for n in range(1, 5)]
    again = [
        make_entry(n + 10, intent=make_intent(n + 10, operation=SHADOW), model="other", input_tokens=n, output_tokens=7)
        for n in (1, 2)
    ]
    again += [
        make_entry(13, model="other", finish_reason="length"),
        make_entry(14, model="other", is_usage_estimated=True),
    ]
    await SqlLedger(engine).insert([*shown, *again])
    for number in range(1, 5):
        await store.add_shadow(ShadowCall(request_id(number + 10), request_id(number), number, 0.5))
    assert await store.shadow_pairs(0, 10) == [ShadowPair("other", "mid-hosted", 2, 300, 20, 3, 14)]
    assert await store.shadow_pairs(2, 10) == [ShadowPair("other", "mid-hosted", 1, 200, 10, 2, 7)]
    assert await store.shadow_pairs(10, 20) == []
