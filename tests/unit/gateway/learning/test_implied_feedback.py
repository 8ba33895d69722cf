"""What a repeated prompt says, on the whole path, and what it never says."""

import gc
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from backends.scripted import Outcome, Script, follow
from gateway.learning.implied_feedback import AT_ONCE_SECONDS, QUIET_SECONDS, ImpliedFeedback
from gateway.ledger.entry import Entry
from gateway.stores import Feedback
from tests.builders import make_snapshot
from tests.rig import A, B, Rig

OTHER = [{"role": "user", "content": "something else"}]


class Store:
    def __init__(self) -> None:
        self.rows: list[Feedback] = []
        self.fails = False

    async def add(self, batch: Sequence[Feedback]) -> None:
        if self.fails:
            raise ConnectionError("down")
        self.rows += batch


class Bench:
    """A rig whose clock advances between requests."""

    def __init__(self, one: Script | None = None) -> None:
        self.seconds = 0.0
        self.now_us = 10**15
        self.store = Store()
        self.rig = Rig(one)
        self.implied = ImpliedFeedback(self.store, lambda: self.now_us, lambda: self.seconds)
        self.rig.pipeline.implied = self.implied
        self.rig.observed.settled = self.implied.settled

    async def ask(self, *, later: float = 1.0, **body: Any) -> str:
        self.seconds += later
        await self.rig.ask(**body)
        return self.rig.ledger.entries[-1].intent.request_id

    async def found(self, *, later: float = QUIET_SECONDS) -> dict[str, float]:
        self.seconds += later
        await self.implied.flush()
        assert {row.source for row in self.store.rows} <= {"repeat", "format"}
        return {row.request_id: row.score for row in self.store.rows}


@pytest.fixture
def others_objects_aside() -> None:
    """Objects from before are frozen, so that they are not searched: a million of them would take a second each
    time."""
    gc.freeze()


def held_of(request_ids: Collection[str]) -> int:
    """How many of these entries are in memory."""
    gc.collect()
    entries = [one for one in gc.get_objects() if type(one) is Entry]  # isinstance wakes other libraries' objects
    return sum(one.intent.request_id in request_ids for one in entries)


async def test_the_second_of_two_answers_was_the_one_to_keep() -> None:
    bench = Bench()
    first, _ = await bench.ask(), await bench.ask(messages=OTHER)
    second = await bench.ask()
    assert await bench.found(later=QUIET_SECONDS - 1) == {}, "a third time may come"
    assert await bench.found(later=1) == {first: 0.0, second: 1.0}
    assert len(await bench.found()) == 2, "said once"


async def test_a_clock_that_is_put_back_holds_up_nothing() -> None:
    bench = Bench()
    await bench.ask()
    bench.now_us -= 86_400_000_000
    await bench.ask()
    assert len(await bench.found()) == 2
    assert {row.at_us for row in bench.store.rows} == {bench.now_us}


@pytest.mark.usefixtures("others_objects_aside")
async def test_no_entry_is_held_while_a_repetition_is_waited_for() -> None:
    """Each has about 3 kB, and there can be 20,000 of them for two minutes."""
    bench = Bench()
    asked = {await bench.ask(messages=[{"role": "user", "content": f"question {number}"}]) for number in range(5)}
    assert held_of(asked) == 5
    bench.rig.ledger.entries.clear()
    assert held_of(asked) == 0


@pytest.mark.parametrize("count", [1, 3, 7])
async def test_asking_once_or_often_says_nothing(count: int) -> None:
    bench = Bench()
    for _ in range(count):
        await bench.ask()
    assert await bench.found() == {}


async def test_asking_again_much_later_says_nothing() -> None:
    bench = Bench()
    await bench.ask()
    await bench.ask(later=AT_ONCE_SECONDS + 1)
    assert await bench.found() == {}


async def test_a_failed_answer_says_nothing_of_quality() -> None:
    bench = Bench(follow([Outcome(fault="reset", fault_after_pieces=1), Outcome()]))
    await bench.ask(stream=True)
    await bench.ask(stream=True)
    assert await bench.found() == {}


@pytest.mark.parametrize(("named", "expected"), [("b", [0.0, 1.0]), ("a", [])])
async def test_who_names_a_model_means_a_stronger_one(named: str, expected: list[float]) -> None:
    bench = Bench()
    await bench.ask()
    await bench.ask(model=named)
    assert list((await bench.found()).values()) == expected


async def test_of_a_named_model_nothing_is_learnt() -> None:
    bench = Bench()
    await bench.ask(model="a")
    await bench.ask()
    assert await bench.found() == {}


async def test_pictures_are_not_recognised() -> None:
    bench = Bench()
    content = [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    sees = A.supports | {"vision"}
    bench.rig.pipeline.snapshot = make_snapshot(candidates=[replace(A, supports=sees), B])
    for _ in range(2):
        await bench.ask(messages=[{"role": "user", "content": content}])
    assert await bench.found() == {}


async def test_what_could_not_be_stored_is_stored_later() -> None:
    bench = Bench()
    await bench.ask()
    await bench.ask()
    bench.store.fails = True
    with pytest.raises(ConnectionError):
        await bench.found()
    bench.store.fails = False
    assert len(await bench.found()) == 2


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


@pytest.mark.parametrize(
    ("body", "first", "expected"),
    [
        ({"tools": TOOLS, "tool_choice": "required"}, Outcome(), [0.0]),
        ({"tools": TOOLS}, Outcome(), [1.0]),
        ({"tools": TOOLS}, Outcome(finish_reason="length"), []),
        ({}, Outcome(), []),
        ({}, Outcome(pieces=()), []),
    ],
)
async def test_what_a_cascade_verified_of_form(body: dict[str, Any], first: Outcome, expected: list[float]) -> None:
    bench = Bench(follow([first]))
    rules = "version: 1\nrules: [{name: r, choose: {from: [a]}, cascade: {escalate_to: [b]}}]\n"
    bench.rig.pipeline.snapshot = make_snapshot(rules, [A, B])
    await bench.ask(**body)
    assert list((await bench.found()).values()) == expected
