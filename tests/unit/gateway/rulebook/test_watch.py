from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from gateway.instants import DAY_US
from gateway.ledger.entry import Cost, Entry
from gateway.limits.local_counters import LocalCounters
from gateway.routing.rules import AUTO
from gateway.routing.snapshot import Snapshot
from gateway.rulebook.state import NO_ROOM, ExplorationSpend, RuleState
from gateway.rulebook.watch import PAGE, RECENT_REQUESTS, RuleWatch
from gateway.stores import Correction, EntryWanted, Explored
from tests.builders import make_candidate, make_facts, make_prices, make_snapshot
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_intent

TODAY_US = 100 * DAY_US


class Books:
    """Entries in the order of their numbers, newest last."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)
        self.read = 0
        self.during: Callable[[], None] = lambda: None

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        found = [one for one in reversed(self.entries) if one.intent.decision.rule == wanted.rule]
        if wanted.before is not None:
            found = [one for one in found if one.intent.request_id < wanted.before]
        self.read += len(found[: wanted.limit])
        return found[: wanted.limit]

    async def explored(self, rule: str, since_us: int, until_us: int) -> AsyncIterator[Sequence[Explored]]:
        self.during()
        for one in self.entries:
            self.read += 1
            decision, cost = one.intent.decision, one.cost
            if decision.rule == rule and since_us <= one.intent.accepted_at_us < until_us and cost is not None:
                expected, explored = decision.expected_cost_pico_usd, decision.exploration_pico_usd
                yield [Explored(cost.total_pico_usd, expected, explored)]

    async def get(self, request_id: str) -> Entry | None:
        raise NotImplementedError

    async def corrections(self, request_ids: Sequence[str]) -> dict[str, list[Correction]]:
        raise NotImplementedError


def snapshot_of(choose: str) -> Snapshot:
    rules = f"version: 1\nrules: [{{name: default, choose: {choose}}}]\n"
    return make_snapshot(rules, [make_candidate("mid"), make_candidate("large", prices=make_prices(10, 40))])


def routed(number: int, *, classifier: str = "classifier-1", **decision: object) -> Entry:
    facts = make_facts(quality={"mid": 0.8, "large": 0.9})
    made = make_decision(rule="default", classifier_version=classifier, facts=facts, **decision)
    entry = make_entry(number, intent=make_intent(number, decision=made, requested_model=AUTO))
    return msgspec.structs.replace(entry, cost=Cost(output_pico_usd=300_000_000))


def watch_of(books: Books, snapshot: Snapshot, *, started_us: int = TODAY_US) -> tuple[RuleWatch, RuleState]:
    state = RuleState()
    spend = ExplorationSpend(state, lambda: started_us)
    return RuleWatch(books, state, spend, lambda: snapshot, lambda: started_us, LocalCounters()), state


async def test_a_threshold_comes_from_the_newest_traffic_of_the_rule() -> None:
    snapshot = snapshot_of("{from: any, quality_share: 0.85}")
    books = Books([routed(number) for number in range(1, RECENT_REQUESTS + 10 * PAGE)])
    watch, state = watch_of(books, snapshot)
    await watch.look()
    assert state.allowed_loss == {snapshot.rules[0].target_name: pytest.approx(0.1)}
    assert books.read == RECENT_REQUESTS


async def test_predictions_of_another_classifier_calibrate_nothing() -> None:
    snapshot = snapshot_of("{from: any, quality_share: 0.85}")
    books = Books([routed(number, classifier="classifier-0") for number in range(1, 1000)])
    watch, state = watch_of(books, snapshot)
    state.allowed_loss = {"of a rule that is gone": 0.5}
    await watch.look()
    assert state.allowed_loss == {}


async def test_books_are_not_read_for_rules_without_a_target_or_a_cap() -> None:
    books = Books([routed(number) for number in range(1, 1000)])
    watch, state = watch_of(books, snapshot_of("{from: any, explore: 0.1}"))
    await watch.start()
    assert (books.read, state) == (0, RuleState())


async def test_after_a_restart_todays_money_is_still_spent_and_none_goes_out_before_that_is_known() -> None:
    snapshot = snapshot_of("{from: any, explore: 0.1, explore_usd_per_day: 1}")
    explored = [
        routed(number, expected_cost_pico_usd=250_000_000, exploration_pico_usd=100_000_000)
        for number in range(1, PAGE + 21)
    ]
    books = Books(
        [
            msgspec.structs.replace(
                one, intent=msgspec.structs.replace(one.intent, accepted_at_us=TODAY_US + (number - 10))
            )
            for number, one in enumerate(explored)
        ]
    )
    watch, state = watch_of(books, snapshot, started_us=TODAY_US + PAGE)
    await watch.start()
    assert (books.read, state.explored_pico_usd) == (0, {"default": NO_ROOM}), "no start waits for a day's requests"
    await watch.share()
    assert state.explored_pico_usd == {"default": PAGE * 150_000_000}, "ten are yesterday's, ten came after the start"
    books.entries.clear()
    await watch.share()
    assert state.explored_pico_usd == {"default": PAGE * 150_000_000}, "read once"


async def test_a_rule_that_gets_a_cap_while_serving_has_spent_what_it_had_before() -> None:
    snapshots, shown = [snapshot_of("{from: any, explore: 0.1}")], list[dict[str, int]]()
    books = Books([routed(1, expected_cost_pico_usd=250_000_000, exploration_pico_usd=100_000_000)])
    books.entries[0] = msgspec.structs.replace(
        books.entries[0], intent=msgspec.structs.replace(books.entries[0].intent, accepted_at_us=TODAY_US)
    )
    state = RuleState()
    spend = ExplorationSpend(state, lambda: TODAY_US + 1)
    watch = RuleWatch(books, state, spend, lambda: snapshots[-1], lambda: TODAY_US + 1, LocalCounters())
    await watch.start()
    await watch.share()
    assert state.explored_pico_usd == {}
    snapshots.append(snapshot_of("{from: any, explore: 0.1, explore_usd_per_day: 1}"))
    books.during = lambda: shown.append(state.explored_pico_usd)
    await watch.share()
    assert shown == [{"default": NO_ROOM}], "a million requests take a while to read"
    assert state.explored_pico_usd == {"default": 150_000_000}
