"""The four laws of docs/economics.md, then what a replay simulates."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.economics.errors import EconomicsError
from gateway.economics.replay.log import LoggedRequest, Served, logged_request_of
from gateway.economics.replay.outcome import ModelOutcome
from gateway.economics.replay.replay import Decide, Decided, PriceServed, Scenario, decide_with, replay
from gateway.economics.replay.result import ReplayDiff
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import Candidate, EngineSpeed, Snapshot
from tests.unit.gateway.economics.replay.builders import (
    BIG,
    LOCAL,
    MID,
    MODELS,
    by_facts,
    dearer,
    everything_to,
    logged_under,
    make_logged,
    price,
)
from tests.unit.gateway.ledger.builders import make_entry

OUTCOMES = {
    LOCAL: ModelOutcome(output_ratio=1.25, prefill_tokens_per_second=8000.0, step_seconds=0.05),
    BIG: ModelOutcome(input_ratio=1.1, output_ratio=0.9, base_seconds=0.5),
}

requests = st.builds(
    make_logged,
    st.just(0.0),
    model=st.sampled_from(MODELS),
    input_tokens=st.integers(1, 8000),
    output_tokens=st.integers(0, 900),
    difficulty=st.one_of(st.none(), st.floats(0, 1)),
    free=st.one_of(st.none(), st.integers(0, 3)),
    cost=st.one_of(st.none(), st.integers(0, 10**12)),
    total_seconds=st.floats(0, 60),
)


@st.composite
def logs(draw: st.DrawFn) -> list[LoggedRequest]:
    """Sorted by time, over two days, with arbitrary costs, and some prompts logged as partly cached."""
    gaps = draw(st.lists(st.floats(0, 40_000), max_size=12))
    log: list[LoggedRequest] = []
    now = 0.0
    for gap in gaps:
        now += gap
        one = draw(requests)
        log.append(
            make_logged(
                now,
                model=one.model,
                input_tokens=one.served.input_tokens,
                cached=draw(st.integers(0, one.served.input_tokens)),
                output_tokens=one.served.output_tokens,
                difficulty=one.facts.difficulty,
                free=one.facts.backend_state[LOCAL][0] if one.facts.backend_state else None,
                cost=one.cost_pico_usd,
                total_seconds=one.total_seconds,
            )
        )
    return log


def make_scenario(
    decide: Decide = by_facts, *, new: PriceServed = price, old: PriceServed = price, is_plain: bool = False
) -> Scenario:
    if is_plain:
        return Scenario(decide, new, old)
    return Scenario(decide, new, old, outcomes=OUTCOMES)


def same_price_by_another_name(model: str, served: Served) -> int | None:
    return price(model, served)


@settings(max_examples=90)
@given(log=logs(), new=st.sampled_from([price, same_price_by_another_name]))
def test_identity(log: list[LoggedRequest], new: PriceServed) -> None:
    """Under the logged rules and prices nothing moves, and no cost changes by a pico-dollar."""
    logged = logged_under(by_facts, log)
    diff = replay(logged, make_scenario(new=new))
    assert diff.moved == diff.refused == 0
    assert diff.replayed == diff.logged
    assert diff.replayed.cost_pico_usd == sum(one.cost_pico_usd or 0 for one in logged)


@given(log=logs(), decide=st.sampled_from([by_facts, everything_to(BIG), everything_to(LOCAL)]))
def test_a_higher_price_never_makes_the_bill_smaller(log: list[LoggedRequest], decide: Decide) -> None:
    cheap = replay(log, make_scenario(decide))
    dear = replay(log, make_scenario(decide, new=dearer))
    assert dear.replayed.cost_pico_usd >= cheap.replayed.cost_pico_usd
    assert dear.replayed.requests_by_model == cheap.replayed.requests_by_model


@given(log=logs(), model=st.sampled_from(MODELS))
def test_everything_to_one_model_is_the_closed_form(log: list[LoggedRequest], model: str) -> None:
    consistent = [
        make_logged(
            one.served.at_us / 1e6,
            model=one.model,
            input_tokens=one.served.input_tokens,
            output_tokens=one.served.output_tokens,
        )
        for one in log
    ]
    diff = replay(consistent, make_scenario(everything_to(model), is_plain=True))
    closed = sum(price(model, one.served) or 0 for one in consistent)
    assert diff.replayed.cost_pico_usd == closed
    assert diff.moved == sum(one.model != model for one in consistent)


@given(log=logs(), cut=st.integers(0, 12), decide=st.sampled_from([everything_to(BIG), everything_to(LOCAL)]))
def test_splitting_the_period_changes_nothing(log: list[LoggedRequest], cut: int, decide: Decide) -> None:
    scenario = make_scenario(decide, is_plain=True)
    whole, parts = replay(log, scenario), [replay(log[:cut], scenario), replay(log[cut:], scenario)]
    assert whole.replayed.cost_pico_usd == sum(part.replayed.cost_pico_usd for part in parts)
    assert whole.moved == sum(part.moved for part in parts)
    assert moves_of(whole) == merge([moves_of(part) for part in parts])


def moves_of(diff: ReplayDiff) -> dict[tuple[str, str], tuple[int, int]]:
    return {(move.logged_model, move.model): (move.requests, move.cost_change_pico_usd) for move in diff.moves}


def merge(parts: list[dict[tuple[str, str], tuple[int, int]]]) -> dict[tuple[str, str], tuple[int, int]]:
    merged: dict[tuple[str, str], tuple[int, int]] = {}
    for part in parts:
        for key, (count, change) in part.items():
            before = merged.get(key, (0, 0))
            merged[key] = (before[0] + count, before[1] + change)
    return merged


def test_what_fell_back_falls_back_again() -> None:
    """The chosen model failed and another answered: under the same rules nothing moves, under others it can."""
    fallen = replace(make_logged(0, model=BIG, decided=MID, cost=777), quality=0.7)  # predicted for the chosen model
    same = replay([fallen], make_scenario(everything_to(MID)))
    assert (same.moved, same.replayed) == (0, same.logged)
    assert same.replayed.cost_pico_usd == 777
    other = replay([fallen], make_scenario(everything_to(LOCAL)))
    assert (other.moved, other.replayed.requests_by_model) == (1, {LOCAL: 1})
    chosen = make_logged(0, model=BIG, decided=BIG)
    assert replay([chosen], make_scenario(everything_to(MID))).moved == 1


def test_a_log_must_be_in_order() -> None:
    with pytest.raises(EconomicsError, match="is earlier than the one before it"):
        replay([make_logged(2.0), make_logged(1.0)], make_scenario())


def test_requests_that_move_to_an_engine_take_its_slots() -> None:
    """Three easy requests find one logged free slot at the same time: only the first is served there."""
    log = [make_logged(at, difficulty=0.1, free=1, model=MID) for at in (0.0, 1.0, 2.0)]
    diff = replay(log, Scenario(by_facts, price, price, outcomes=OUTCOMES))
    assert diff.replayed.requests_by_model == {LOCAL: 1, MID: 2}
    later = replay([*log, make_logged(100.0, difficulty=0.1, free=1)], Scenario(by_facts, price, price))
    assert later.replayed.requests_by_model == {LOCAL: 2, MID: 2}


def test_requests_that_leave_an_engine_free_its_slots() -> None:
    log = [
        make_logged(0.0, difficulty=0.9, free=1, model=LOCAL, total_seconds=30.0),
        make_logged(10.0, difficulty=0.1, free=0, model=MID),
        make_logged(50.0, difficulty=0.1, free=0, model=MID),
    ]
    diff = replay(log, Scenario(by_facts, price, price))
    assert diff.replayed.requests_by_model == {BIG: 1, LOCAL: 1, MID: 1}


def test_answers_have_the_length_that_the_other_model_would_give_within_the_callers_limit() -> None:
    log = [make_logged(0.0), make_logged(1.0, max_output_tokens=310)]
    diff = replay(log, Scenario(everything_to(LOCAL), lambda _, served: served.output_tokens, price, OUTCOMES))
    assert diff.replayed.cost_pico_usd == 375 + 310


def test_a_price_change_applies_to_what_was_logged_and_keeps_billed_failures() -> None:
    one = make_logged(0.0)
    assert one.cost_pico_usd is not None
    with_failure = make_logged(0.0, cost=one.cost_pico_usd + 77)
    diff = replay([with_failure], make_scenario(everything_to(MID), new=dearer))
    assert diff.replayed.cost_pico_usd == one.cost_pico_usd + one.cost_pico_usd // 10 + 77


def test_an_unknown_price_is_counted_and_never_free() -> None:
    diff = replay([make_logged(0.0)], make_scenario(everything_to(BIG), new=lambda _, __: None))
    assert (diff.replayed.unpriced, diff.replayed.cost_pico_usd) == (1, 0)
    assert (diff.moves[0].cost_change_pico_usd, diff.moves[0].unpriced) == (0, 1)


def test_refusals_are_counted() -> None:
    diff = replay([make_logged(0.0)], make_scenario(lambda _, __: None))
    assert (diff.refused, diff.moved, diff.replayed.requests_by_model) == (1, 0, {})
    assert diff.logged == diff.replayed, "what was paid for it would look like a saving"
    assert diff.replayed.mean_quality is None
    assert diff.replayed.time_to_first_token_p50_seconds is None


def test_the_diff_says_what_moved_and_what_it_changes() -> None:
    log = [make_logged(float(at), input_tokens=100 * (at + 1)) for at in range(30)]
    diff = replay(log, make_scenario(everything_to(BIG), is_plain=True))
    assert diff.logged.mean_quality == pytest.approx(0.7)
    assert diff.replayed.mean_quality == pytest.approx(0.9)
    assert [(move.logged_model, move.model, move.requests) for move in diff.moves] == [(MID, BIG, 30)]
    assert diff.cost_change_pico_usd == diff.moves[0].cost_change_pico_usd > 0
    assert diff.moves[0].unpriced == 0


def test_progress_is_heard() -> None:
    heard: list[int] = []
    replay([make_logged(float(at)) for at in range(25_000)], make_scenario(), progress=heard.append)
    assert heard == [10_000, 20_000, 25_000]


def test_the_routers_own_decision_is_replayed() -> None:
    document = parse_rules(
        "version: 1\n"
        "models:\n"
        "  local: {backend: engine, upstream_model: small, context_window: 4096, supports: [streaming]}\n"
        "  mid: {backend: hosted, upstream_model: mid, context_window: 100000, supports: [streaming]}\n"
        "rules:\n"
        "  - name: easy\n"
        "    when: {difficulty: {at_most: 0.4}}\n"
        "    choose: {from: [local]}\n"
        "  - name: rest\n"
        "    choose: {from: [mid]}\n"
    )
    candidates = {
        name: Candidate(
            name=name,
            backend=model.backend,
            provider="",
            upstream_model=name,
            context_window=model.context_window,
            supports=frozenset(model.supports),
            is_local=name == LOCAL,
            is_simulated=False,
            prices=None,
            speed=EngineSpeed(8000.0, 0.0008, 0.05, 2 * 10**12) if name == LOCAL else None,
        )
        for name, model in document.models.items()
    }
    snapshot = Snapshot(tuple(document.rules), candidates, "r1", "p1", "c1")
    log = [
        make_logged(0.0, difficulty=0.1),
        make_logged(1.0, difficulty=0.9),
        make_logged(2.0, difficulty=0.1, input_tokens=5000),
    ]
    diff = replay(log, Scenario(decide_with(snapshot), price, price))
    assert diff.replayed.requests_by_model == {LOCAL: 1, MID: 1}
    assert diff.refused == 1


def test_a_price_that_was_not_known_then_costs_nothing_more_now() -> None:
    """Next to a request whose cost is known on both sides, both sums cover only that one."""
    unknown, known = replace(make_logged(0.0), cost_pico_usd=None), make_logged(1.0)
    diff = replay([unknown, known], make_scenario(everything_to(MID), new=dearer))
    assert (diff.logged.unpriced, diff.replayed.unpriced) == (1, 1)
    assert diff.logged.cost_pico_usd == known.cost_pico_usd
    assert diff.replayed.cost_pico_usd == dearer(MID, known.served)
    assert (diff.logged.requests_by_model, diff.replayed.requests_by_model) == ({MID: 2}, {MID: 2})


def test_a_ledger_entry_becomes_a_logged_request() -> None:
    entry = make_entry(3, cache_write_5m_tokens=10, cache_write_1h_tokens=20)
    logged = logged_request_of(entry)
    assert logged.served.cache_write_tokens == 30
    assert logged.served.at_us == entry.intent.accepted_at_us
    assert logged.facts is entry.intent.decision.facts
    assert logged.decided == entry.intent.decision.model
    assert logged.cost_pico_usd == (None if entry.cost is None else entry.cost.total_pico_usd)
    assert logged_request_of(make_entry(3, cost=None)).cost_pico_usd is None


def test_unknown_figures_are_left_out_of_the_means() -> None:
    blank = replace(make_logged(0.0), quality=None, time_to_first_token_seconds=None)
    diff = replay([blank], make_scenario(lambda _, __: Decided(MID, None), is_plain=True))
    assert diff.logged.mean_quality is diff.replayed.mean_quality is None
    assert diff.replayed.time_to_first_token_p50_seconds is None
