"""A cascade in a replay: the outcome of a verification is replayed if the same model is asked, and never made up."""

from dataclasses import replace

import msgspec
import pytest

from gateway.economics.replay.log import LoggedRequest, Served, Verified, logged_request_of
from gateway.economics.replay.replay import Decide, Decided, Scenario, replay
from gateway.economics.replay.result import ReplayDiff
from gateway.ledger.entry import ESCALATED, Attempt, Facts
from gateway.routing.snapshot import RequestFacts
from tests.unit.gateway.economics.replay.builders import BIG, LOCAL, MID, make_logged, price
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_intent

ASKED = 7_000


def refused(served_by: str = BIG) -> LoggedRequest:
    """MID was asked, its answer failed verification, and `served_by` answered."""
    plain = make_logged(0.0, model=served_by)
    assert plain.cost_pico_usd is not None
    return replace(plain, cost_pico_usd=plain.cost_pico_usd + ASKED, verified=Verified(MID, False, ASKED))


def stood() -> LoggedRequest:
    return replace(make_logged(0.0, model=MID), verified=Verified(MID, True))


def to(model: str, *escalates_to: str) -> Decide:
    def decide(request: RequestFacts, facts: Facts, /) -> Decided | None:
        return Decided(model, facts.quality[model], escalates_to)

    return decide


def replayed(logged: LoggedRequest, decide: Decide) -> ReplayDiff:
    def priced(model: str, served: Served) -> int | None:
        return price(model, served)

    return replay([logged], Scenario(decide=decide, price=priced, logged_price=priced))


def cost(model: str) -> int:
    found = make_logged(0.0, model=model).cost_pico_usd
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("logged", "decide", "model", "expected", "unverified"),
    [
        (refused(), to(MID, BIG), BIG, cost(BIG) + ASKED, 0),
        (stood(), to(MID, BIG), MID, cost(MID), 0),
        (refused(), to(BIG), BIG, cost(BIG), 0),
        (refused(), to(MID), MID, cost(MID), 0),
        (refused(BIG), to(MID, LOCAL), LOCAL, None, 0),
        (make_logged(0.0, model=MID), to(MID, BIG), MID, cost(MID), 1),
        (make_logged(0.0, model=BIG), to(MID, BIG), MID, cost(MID), 1),
        (stood(), to(LOCAL, BIG), LOCAL, None, 1),
        (refused(), to(LOCAL, BIG), LOCAL, None, 1),
    ],
)
def test_the_logged_outcome_counts_where_the_same_was_asked(
    logged: LoggedRequest, decide: Decide, model: str, expected: int | None, unverified: int
) -> None:
    diff = replayed(logged, decide)
    assert diff.replayed.requests_by_model == {model: 1}
    assert diff.unverified == unverified
    if expected is not None:
        assert diff.replayed.cost_pico_usd == expected


def verifying(*, form: bool, logprobs: bool) -> Decide:
    def decide(request: RequestFacts, facts: Facts, /) -> Decided | None:
        return Decided(MID, facts.quality[MID], (BIG,), form, logprobs)

    return decide


@pytest.mark.parametrize(
    ("is_unsure", "decide", "model"),
    [
        (True, verifying(form=True, logprobs=True), BIG),
        (True, verifying(form=True, logprobs=False), MID),
        (False, verifying(form=True, logprobs=False), BIG),
        (False, verifying(form=False, logprobs=True), MID),
    ],
)
def test_an_answer_stands_where_what_was_against_it_is_no_more_verified(
    is_unsure: bool, decide: Decide, model: str
) -> None:
    logged = replace(refused(), verified=Verified(MID, False, ASKED, is_unsure))
    diff = replayed(logged, decide)
    assert (diff.replayed.requests_by_model, diff.unverified) == ({model: 1}, 0)
    assert diff.replayed.cost_pico_usd == (ASKED if model == MID else cost(BIG) + ASKED)


def cut(decided: str = MID) -> LoggedRequest:
    """MID's answer was cut off at the length limit, and not verified."""
    return replace(make_logged(0.0, model=MID, decided=decided), is_unfinished=True)


@pytest.mark.parametrize(
    ("logged", "decide", "model", "unverified"),
    [
        (cut(), to(MID, BIG), BIG, 0),
        (cut(decided=LOCAL), to(LOCAL, BIG), BIG, 0),
        (cut(), to(LOCAL, BIG), LOCAL, 1),
        (cut(decided=LOCAL), to(LOCAL, MID), MID, 1),
        (cut(), to(MID), MID, 0),
    ],
)
def test_an_answer_that_was_cut_would_not_have_stood(
    logged: LoggedRequest, decide: Decide, model: str, unverified: int
) -> None:
    """Only if it would be given again; nothing is known about another model's answer."""
    diff = replayed(logged, decide)
    assert (diff.replayed.requests_by_model, diff.unverified) == ({model: 1}, unverified)
    paid = cost(BIG) + cost(MID) if model == BIG else cost(model)
    assert diff.replayed.cost_pico_usd == paid
    assert diff.logged.cost_pico_usd == cost(MID)


def test_an_engines_answer_that_was_cut_costs_nothing_more() -> None:
    engine = make_logged(0.0, model=MID)
    engine = replace(engine, served=engine.served._replace(gpu_seconds=2.0), is_unfinished=True)
    assert replayed(engine, to(MID, BIG)).replayed.cost_pico_usd == cost(BIG)


def test_a_cut_answer_stands_where_its_form_is_not_verified() -> None:
    def decide(request: RequestFacts, facts: Facts, /) -> Decided | None:
        return Decided(MID, None, (BIG,), verifies_format=False)

    assert replayed(cut(), decide).replayed.requests_by_model == {MID: 1}


@pytest.mark.parametrize(
    ("finish_reason", "escalates_to", "expected"),
    [("length", (), True), ("content_filter", (), True), ("stop", (), False), ("length", ("big",), False)],
)
def test_what_the_books_say_of_an_answer_that_was_cut(
    finish_reason: str, escalates_to: tuple[str, ...], *, expected: bool
) -> None:
    """A cascade passed it because its form was not verified, or no better answer came: it passes again."""
    intent = make_intent(1, decision=make_decision(escalates_to=escalates_to))
    entry = msgspec.structs.replace(make_entry(1, intent=intent), finish_reason=finish_reason)
    assert logged_request_of(entry).is_unfinished is expected


def test_what_is_refused_again_is_paid_for_again_beside_another_model() -> None:
    diff = replayed(refused(), to(MID, LOCAL))
    assert diff.replayed.cost_pico_usd == replayed(refused(), to(LOCAL)).replayed.cost_pico_usd + ASKED


def test_under_the_rules_it_was_logged_with_nothing_changes() -> None:
    diff = replayed(refused(), to(MID, BIG))
    assert (diff.moved, diff.cost_change_pico_usd) == (0, 0)
    assert diff.replayed.mean_quality == 0.9


def attempt(number: int, model: str, outcome: str, cost_pico_usd: int = 0) -> Attempt:
    return Attempt(number, model, "openai", outcome, 0.0, 1.0, cost_pico_usd)


@pytest.mark.parametrize(
    ("escalates_to", "attempts", "model", "expected"),
    [
        ((), [attempt(1, "mid", "answered")], "mid", None),
        (("big",), [attempt(1, "mid", "answered")], "mid", Verified("mid", True)),
        (
            ("big",),
            [attempt(1, "mid", f"{ESCALATED}cut", 5), attempt(2, "big", "answered")],
            "big",
            Verified("mid", False, 5),
        ),
        (
            ("big",),
            [attempt(1, "mid", f"{ESCALATED}unsure", 5), attempt(2, "big", "answered")],
            "big",
            Verified("mid", False, 5, is_unsure=True),
        ),
        (("big",), [attempt(1, "mid", "ConnectFailed"), attempt(2, "big", "answered")], "big", None),
        (("big",), [attempt(1, "mid", "answered"), attempt(2, "big", "ConnectFailed")], "mid", None),
    ],
)
def test_what_the_books_say_of_a_verification(
    escalates_to: tuple[str, ...], attempts: list[Attempt], model: str, expected: Verified | None
) -> None:
    intent = make_intent(1, decision=make_decision(escalates_to=escalates_to))
    entry = msgspec.structs.replace(make_entry(1, intent=intent), model=model, attempts=tuple(attempts))
    assert logged_request_of(entry).verified == expected
