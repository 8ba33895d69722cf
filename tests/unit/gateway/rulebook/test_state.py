import msgspec

from gateway.instants import DAY_US
from gateway.ledger.entry import Cost, Decision, Entry
from gateway.rulebook.state import NO_ROOM, ExplorationSpend, RuleState, extra_cost_pico_usd
from tests.unit.gateway.ledger.builders import make_entry


class Clock:
    now_us = 5 * DAY_US

    def __call__(self) -> int:
        return self.now_us


def explored(cost_pico_usd: int | None, *, number: int = 1, expected: int | None = 100) -> Entry:
    entry = make_entry(number)
    decision = msgspec.structs.replace(
        entry.intent.decision, rule="r", exploration_pico_usd=60, expected_cost_pico_usd=expected
    )
    cost = None if cost_pico_usd is None else Cost(output_pico_usd=cost_pico_usd)
    return msgspec.structs.replace(entry, intent=msgspec.structs.replace(entry.intent, decision=decision), cost=cost)


def begin(spend: ExplorationSpend, entry: Entry) -> Decision:
    decision = entry.intent.decision
    spend.began(entry.intent.request_id, decision)
    return decision


def test_what_is_under_way_counts_as_expected_and_what_is_settled_as_it_was() -> None:
    state = RuleState()
    spend = ExplorationSpend(state, Clock())
    entry = explored(240)
    begin(spend, entry)
    assert state.explored_pico_usd == {"r": 60}
    spend.settled(entry)
    assert state.explored_pico_usd == {"r": 200}, "240 where the preferred model was expected to cost 40"
    spend.settled(entry)
    assert state.explored_pico_usd == {"r": 200}, "once"


def test_an_entry_that_explored_nothing_is_passed_over() -> None:
    state = RuleState()
    ExplorationSpend(state, Clock()).settled(make_entry(1))
    assert state.explored_pico_usd == {}


def test_a_new_day_has_all_its_money_though_nobody_explores() -> None:
    state, clock = RuleState(), Clock()
    spend = ExplorationSpend(state, clock)
    entry = explored(100)
    begin(spend, entry)
    spend.settled(entry)
    under_way = explored(100, number=2)
    begin(spend, under_way)
    clock.now_us += DAY_US
    spend.turn()
    assert state.explored_pico_usd == {"r": 60}, "what is still under way will be paid for today"


def test_a_clock_that_jumps_gives_no_day_its_money_twice() -> None:
    state, clock = RuleState(), Clock()
    spend = ExplorationSpend(state, clock)
    for number, days in enumerate((0, 1, -1, 30, -30, 1)):
        clock.now_us += days * DAY_US
        entry = explored(100, number=number)
        begin(spend, entry)
        spend.settled(entry)
    assert state.explored_pico_usd == {"r": 2 * 60}
    clock.now_us -= DAY_US
    spend.turn()
    assert state.explored_pico_usd == {"r": 3 * 60}


def test_what_others_spent_is_spent_and_a_store_that_forgot_it_is_not_believed() -> None:
    state, clock = RuleState(), Clock()
    spend = ExplorationSpend(state, clock)
    spend.told(5, {"r": 400}, {})
    begin(spend, explored(100))
    assert (spend.own(), state.explored_pico_usd) == ((5, {}, {"r": 60}), {"r": 460})
    spend.told(5, {"r": 7}, {})
    assert state.explored_pico_usd == {"r": 460}
    spend.told(4, {"r": 9000}, {})
    assert state.explored_pico_usd == {"r": 460}, "yesterday's"
    clock.now_us += DAY_US
    assert (spend.own(), state.explored_pico_usd) == ((6, {}, {"r": 60}), {"r": 60})


def test_what_others_hold_is_held_until_they_have_spent_less() -> None:
    """A burst of a hundred requests took a whole day's money from all other workers."""
    shown, others = RuleState(), RuleState()
    spend, other = ExplorationSpend(shown, Clock()), ExplorationSpend(others, Clock())
    entries = [explored(110, number=number) for number in range(100)]
    for entry in entries:
        begin(other, entry)
    spend.told(*other.own())
    assert shown.explored_pico_usd == {"r": 100 * 60}
    for entry in entries:
        other.settled(msgspec.structs.replace(entry, cost=Cost(output_pico_usd=41)))
    spend.told(*other.own())
    assert shown.explored_pico_usd == others.explored_pico_usd == {"r": 100}


def test_while_nobody_tells_what_others_spend_there_is_no_money() -> None:
    state = RuleState()
    spend = ExplorationSpend(state, Clock())
    spend.told(5, {"r": 400}, {})
    spend.not_told(["r"])
    assert state.explored_pico_usd["r"] >= NO_ROOM
    spend.told(5, {"r": 500}, {})
    assert state.explored_pico_usd == {"r": 500}


def test_a_decision_keeps_the_facts_it_was_made_from() -> None:
    state = RuleState()
    spend = ExplorationSpend(state, Clock())
    before = state.explored_pico_usd
    begin(spend, explored(100))
    assert before == {}


def test_an_answer_cheaper_than_expected_earns_no_money_and_an_unpriced_one_costs_what_was_expected() -> None:
    assert extra_cost_pico_usd(explored(10)) == 0
    assert extra_cost_pico_usd(explored(None)) == 60
    assert extra_cost_pico_usd(explored(300, expected=None)) == 60
