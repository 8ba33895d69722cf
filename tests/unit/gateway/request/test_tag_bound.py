"""A key whose callers send a unique tag with each request gets sums of bounded size, and the same decisions."""

import logging

import pytest

from gateway.instants import DAY_US
from gateway.request.run import Incoming
from gateway.request.tag_bound import OTHER, TagBound
from gateway.routing.decide import decide, deciding_tags
from gateway.routing.snapshot import request_facts_of
from tests.builders import make_snapshot
from tests.rig import KEY, A, B, RecordingCaller, Rig

PRIVATE_FIRST = """
version: 1
rules:
  - name: private
    when: {tags: [private]}
    choose: {from: [a]}
  - name: default
    choose: {from: [b]}
"""
NOON = 20_000 * DAY_US + DAY_US // 2


def nothing() -> tuple[str, ...]:
    return ()


def test_what_comes_again_is_booked_and_the_rest_is_other() -> None:
    bound = TagBound(2)
    asked = [("a",), ("b", "a"), ("c",), ("a", "b"), ("a",), ("a", "c")]
    booked = [bound.booked("k", tags, NOON, nothing) for tags in asked]
    assert booked == [("a",), ("b", "a"), (OTHER,), ("a", "b"), ("a",), (OTHER,)]
    assert bound.booked("another", ("c",), NOON, nothing) == ("c",), "each key has its own"
    assert bound.booked("k", (), NOON, nothing) == ()


def test_a_new_day_begins_anew_and_a_clock_put_back_does_not() -> None:
    bound = TagBound(1)
    days = [(NOON, "a"), (NOON, "b"), (NOON + DAY_US, "b"), (NOON, "c"), (NOON + DAY_US, "b")]
    assert [bound.booked("k", (tag,), at_us, nothing) for at_us, tag in days] == [
        ("a",), (OTHER,), ("b",), (OTHER,), ("b",),
    ]  # fmt: skip


def test_it_is_said_once_a_day(caplog: pytest.LogCaptureFixture) -> None:
    bound = TagBound(2)
    with caplog.at_level(logging.WARNING):
        for number in range(9):
            bound.booked("k", (str(number),), NOON, nothing)
    assert [one.getMessage()[:46] for one in caplog.records] == ["key k has sent 2 different sets of tags today:"]


async def test_rules_see_every_tag_and_a_decision_is_replayed_from_what_is_booked() -> None:
    rig = Rig()
    rig.pipeline.snapshot = make_snapshot(PRIVATE_FIRST, [A, B])
    rig.pipeline.tags = TagBound(0)
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "hello"}]}'
    incoming = Incoming("chat.completions", f"Bearer {KEY}", body, ("request-1", "private"))
    await rig.pipeline.answer(incoming, RecordingCaller())
    assert (rig.entry.model, rig.entry.intent.tags) == ("a", (OTHER, "base", "private"))
    again = decide(request_facts_of(rig.entry.intent), rig.pipeline.snapshot)
    assert again.decision.model == "a"
    assert deciding_tags(rig.pipeline.snapshot) == {"private", "simulate-hosted"}
