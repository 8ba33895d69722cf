"""Replaying a long log: page by page, up to the limit, with progress, and without getting stuck."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gateway.economics.errors import EconomicsError
from gateway.economics.replay.log import logged_request_of
from gateway.economics.replay.outcome import ShadowPair
from gateway.economics.replay.replay import replay
from gateway.ledger.entry import Cost, Entry, Status
from gateway.reports.replay_service import PAGES_AHEAD, ReplayService, scenario_of
from gateway.reports.replay_views import ReplayResult
from gateway.routing.rules import RulesDocument
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import DOWN_SLOTS
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent

PAGES, PAGE = 3 * PAGES_AHEAD, 10
DOCUMENT: RulesDocument = parse_rules("version: 1\nrules:\n  - {name: default, choose: {from: any}}\n")


class Log:
    """Pages of entries, in the order of `numbers`; then it fails, if told to."""

    def __init__(self, numbers: list[int], breaks: Exception | None = None, **given: Any) -> None:
        self._numbers = numbers
        self._breaks = breaks
        self._given = given

    async def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]:
        for start in range(0, len(self._numbers), PAGE):
            yield [make_entry(number, **self._given) for number in self._numbers[start : start + PAGE]]
        if self._breaks:
            raise self._breaks


class Shadows:
    """Requests that were sent to two models."""

    def __init__(self, *pairs: ShadowPair) -> None:
        self._pairs = pairs

    async def shadow_pairs(self, since_us: int, until_us: int) -> tuple[ShadowPair, ...]:
        return self._pairs


def service(log: Log, most: int | None = None, done: list[int] | None = None) -> ReplayService:
    progress = None if done is None else done.append
    return ReplayService(
        log, Shadows(), lambda document: make_snapshot(), lambda: 1 << 60, most_requests=most, progress=progress
    )


async def test_every_request_of_a_long_log_is_replayed_and_counted() -> None:
    done: list[int] = []
    result = await service(Log(list(range(PAGES * PAGE))), done=done)(DOCUMENT, 0, 1)
    assert (result.requests, result.is_sampled) == (PAGES * PAGE, False)
    assert done[-1] == PAGES * PAGE


@pytest.mark.parametrize(("most", "is_cut"), [(25, True), (PAGES * PAGE - 1, True), (PAGES * PAGE, False)])
async def test_a_log_is_cut_where_that_was_asked_for_and_says_so(most: int, is_cut: bool) -> None:
    result = await service(Log(list(range(PAGES * PAGE))), most)(DOCUMENT, 0, 1)
    assert (result.requests, result.is_sampled) == (most, is_cut)
    assert any("choose a shorter one" in note for note in result.notes) is is_cut


async def test_a_log_that_cannot_be_read_ends_the_replay_with_its_error() -> None:
    with pytest.raises(ConnectionError, match="down"):
        await service(Log(list(range(50)), ConnectionError("down")))(DOCUMENT, 0, 1)


async def test_a_replay_that_fails_does_not_wait_for_the_rest_of_the_log() -> None:
    backwards = [5, *range(PAGES * PAGE)]
    with pytest.raises(EconomicsError, match="is earlier than the one before it"):
        await service(Log(backwards))(DOCUMENT, 0, 1)


async def test_what_a_replay_cannot_know_is_said() -> None:
    rules = "version: 1\nrules: [{name: default, choose: {from: [mid], quality_share: 0.9}, cascade: CASCADE}]\n"
    known = frozenset({"mid", "large"})
    document = parse_rules(rules.replace("CASCADE", "{escalate_to: [large]}"), known_models=known)
    replaying = ReplayService(
        Log([1, 2, 3]),
        Shadows(),
        lambda _: make_snapshot(rules.replace("CASCADE", "{escalate_to: [large]}")),
        lambda: 1 << 60,
    )
    result = await replaying(document, 0, 1)
    assert any("3 requests would go through a cascade" in note for note in result.notes)
    assert any("quality_share" in note for note in result.notes)


@pytest.mark.parametrize(
    ("verify", "model"), [("{format: true}", "large"), ("{format: false, min_mean_logprob: -1}", "mid-hosted")]
)
async def test_an_answer_that_was_cut_is_escalated_where_a_rule_verifies_its_form(verify: str, model: str) -> None:
    rules = (
        "version: 1\nrules: [{name: default, choose: {from: [mid-hosted]}, "
        f"cascade: {{escalate_to: [large], verify: {verify}}}}}]\n"
    )
    snapshot = make_snapshot(rules, [make_candidate("mid-hosted"), make_candidate("large")])
    intent = make_intent(1, is_stream=False, decision=make_decision(facts=make_facts(needs=())))
    entry = msgspec.structs.replace(make_entry(1, intent=intent), model="mid-hosted", finish_reason="length")
    diff = replay([logged_request_of(entry)], scenario_of(snapshot))
    assert diff.replayed.requests_by_model == {model: 1}


async def test_what_was_paid_for_who_would_be_refused_is_no_saving() -> None:
    rules = "version: 1\nrules: [{name: default, choose: {from: [large]}}]\n"
    document = parse_rules(rules, known_models=frozenset({"mid-hosted", "large"}))
    snapshot = make_snapshot(rules, [make_candidate("mid-hosted"), make_candidate("large", context_window=1)])
    result = await ReplayService(Log([1, 2]), Shadows(), lambda _: snapshot, lambda: 1 << 60)(document, 0, 1)
    assert (result.requests, result.refused_requests) == (2, 2)
    assert Decimal(result.cost_before_usd) == Decimal(result.cost_after_usd) == 0
    assert any("The refused requests (2) are in no figure" in note for note in result.notes)


@pytest.mark.parametrize(
    ("allowed", "answers"),
    [("mid-hosted, large", {"large": 1}), ("mid-hosted, third", {"third": 1}), ("mid-hosted", {})],
)
async def test_a_request_falls_back_only_to_what_the_rules_still_allow(allowed: str, answers: dict[str, int]) -> None:
    """Its model had failed, and another answered: that one counted as answering even where the edit forbids it."""
    rules = f"version: 1\nrules: [{{name: default, choose: {{from: [{allowed}], by: order}}}}]\n"
    snapshot = make_snapshot(rules, [make_candidate(name) for name in ("mid-hosted", "large", "third")])
    entry = msgspec.structs.replace(make_entry(1), model="large")
    diff = replay([logged_request_of(entry)], scenario_of(snapshot))
    assert diff.replayed.requests_by_model == answers
    assert diff.refused == diff.refused_down == (not answers)


async def test_who_moves_answers_as_long_as_shadow_calls_have_shown() -> None:
    rules = "version: 1\nrules: [{name: default, choose: {from: [large]}}]\n"
    document = parse_rules(rules, known_models=frozenset({"mid-hosted", "large"}))
    candidates = [make_candidate("mid-hosted"), make_candidate("large", prices=make_prices(0, 40))]

    async def ask(*pairs: ShadowPair) -> ReplayResult:
        snapshot = make_snapshot(rules, candidates)
        return await ReplayService(Log([1, 2]), Shadows(*pairs), lambda _: snapshot, lambda: 1 << 60)(document, 0, 1)

    alike = await ask()
    shorter = await ask(ShadowPair("large", "mid-hosted", 25, 100, 100, 100, 50))
    assert Decimal(alike.cost_after_usd) == Decimal(shorter.cost_after_usd) * 2 > 0
    assert any("Another model's answers" in note for note in alike.notes)
    assert any("relative to large: mid-hosted 2.00, from 25 requests" in note for note in shorter.notes)


async def to_large(log: Log, **given: Any) -> ReplayResult:
    """Everything moves from mid-hosted to a model at $2 and $8, $0.20 where it is cached."""
    rules = "version: 1\nrules: [{name: default, choose: {from: [large]}}]\n"
    document = parse_rules(rules, known_models=frozenset({"mid-hosted", "large"}))
    candidates = [make_candidate("mid-hosted"), make_candidate("large", prices=make_prices(2, 8, **given))]
    replaying = ReplayService(log, Shadows(), lambda _: make_snapshot(rules, candidates), lambda: 1 << 60)
    return await replaying(document, 0, 1)


async def test_what_a_cache_elsewhere_would_save_is_said_and_not_counted() -> None:
    """100 of 500 tokens were read from a cache: 2 requests cost 200 tokens x $1.80 a million less with one there."""
    result = await to_large(Log([1, 2]), cached_input=200_000)
    assert Decimal(result.cost_after_usd) == Decimal(2 * (500 * 2 + 300 * 8)) / 10**6
    [said] = [note for note in result.notes if "prompt cache" in note]
    assert "200 input tokens" in said
    assert "$0.000360 less" in said
    for log, given in ((Log([1, 2]), {}), (Log([1], cached_input_tokens=0), {"cached_input": 200_000})):
        assert not any("prompt cache" in note for note in (await to_large(log, **given)).notes)


async def test_who_got_no_answer_counts_as_if_there_were_none_again() -> None:
    nothing: dict[str, Any] = {
        "status": Status.failed,
        "cost": Cost(),
        "input_tokens": 0,
        "cached_input_tokens": 0,
        "output_tokens": 0,
    }
    result = await to_large(Log([1, 2], **nothing))
    assert (result.moved_requests, Decimal(result.cost_after_usd)) == (2, 0)
    assert any("2 requests got no answer then and would be sent to other models" in note for note in result.notes)
    for allowed, is_said in (("mid-hosted, large", True), ("mid-hosted", False)):
        rules = f"version: 1\nrules: [{{name: default, choose: {{from: [{allowed}], by: order}}}}]\n"
        snapshot = make_snapshot(rules, [make_candidate(name) for name in ("mid-hosted", "large")])
        diff = replay([logged_request_of(make_entry(1, **nothing))], scenario_of(snapshot))
        assert (diff.failed, diff.moved) == (is_said, 0), "an edit that adds a model to fall back to"


async def test_who_is_refused_because_models_were_down_is_told_apart() -> None:
    down = make_decision(facts=make_facts(backend_state={"large": (DOWN_SLOTS, 0.0)}))
    result = await to_large(Log([1], intent=make_intent(1, decision=down)))
    assert result.refused_requests == 1
    assert any("1 of the refused are refused only because" in note for note in result.notes)
