"""A key's budget and rates: refused before anything is booked, and held while a request runs."""

import asyncio
import json

import pytest

from backends.scripted import Outcome, follow
from gateway.errors import BudgetExhausted, LedgerUnavailable, RateLimitExceeded, UpstreamFailed
from gateway.ledger.entry import Intent
from gateway.limits.admission import Admission
from gateway.limits.values import parse_limits
from tests.memory_ledger import MemoryLedger
from tests.rig import Rig


class FullLedger(MemoryLedger):
    def intend(self, intent: Intent) -> None:
        raise LedgerUnavailable("The journal's disk is full.")


def limited(**limits: object) -> Admission:
    return Admission(limits={"key-1": parse_limits(limits)})


async def test_a_spent_budget_refuses_before_anything_is_booked() -> None:
    rig = Rig(admission=limited(budget_usd="0.00001"))
    with pytest.raises(BudgetExhausted):
        await rig.ask(max_tokens=1000)
    assert not rig.ledger.entries
    assert not rig.ledger.open


async def test_who_is_refused_because_the_journal_is_full_has_the_money_back() -> None:
    rig = Rig(admission=limited(budget_usd="0.00008"))  # room for one answer
    rig.pipeline.ledger = FullLedger()
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            await rig.ask(max_tokens=5)
    rig.pipeline.ledger = rig.ledger
    assert (await rig.ask(max_tokens=5)).status == 200


async def test_many_at_once_never_spend_more_than_the_budget_and_use_nearly_all_of_it() -> None:
    # Each answer costs 28 micro-dollars and must hold about 30: 12 input tokens estimated as 2 x 6, 5 of output.
    rig = Rig(admission=limited(budget_usd="0.003"))
    results = await asyncio.gather(*(rig.ask(max_tokens=5) for _ in range(500)), return_exceptions=True)
    refused = sum(isinstance(result, BudgetExhausted) for result in results)
    spent = sum(entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost)
    assert refused + len(rig.ledger.entries) == 500
    assert spent <= 3_000_000_000
    while True:
        try:
            await rig.ask(max_tokens=5)
        except BudgetExhausted:
            break
    spent = sum(entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost)
    assert 0.95 * 3_000_000_000 <= spent <= 3_000_000_000


async def test_a_stream_ends_with_length_when_the_budget_does() -> None:
    pieces = ("x" * 400,) * 40
    rig = Rig(one=follow([Outcome(pieces=pieces)]), admission=limited(budget_usd="0.005"))
    caller = await rig.ask(stream=True)
    assert caller.sent[-1].endswith(b"data: [DONE]\n\n")
    assert (
        json.loads(caller.sent[-1].split(b"\n")[0].removeprefix(b"data: "))["choices"][0]["finish_reason"] == "length"
    )
    assert rig.entry.finish_reason == "length"
    assert rig.entry.error == "budget_reached"
    assert rig.entry.cost is not None
    assert rig.entry.cost.total_pico_usd <= 5_000_000_000
    assert rig.one.open_replies == 0


async def test_a_fallback_that_the_budget_does_not_stretch_to_is_not_tried() -> None:
    rig = Rig(one=follow([Outcome(fault="unavailable")]), admission=limited(budget_usd="0.0005"))
    with pytest.raises(UpstreamFailed):
        await rig.ask(max_tokens=50)
    assert not rig.two.calls, "b costs ten times as much"
    assert rig.pipeline.admission.extend(rig.entry.intent.request_id, 10**15), "nothing is held any more"


@pytest.mark.parametrize(("budget_usd", "attempts"), [("0.000068", 1), ("0.000070", 2)])
async def test_an_attempt_is_repeated_only_if_the_budget_holds_what_the_first_may_be_billed(
    budget_usd: str, attempts: int
) -> None:
    rig = Rig(one=follow([Outcome(fault="garbage")]), admission=limited(budget_usd=budget_usd))
    with pytest.raises(UpstreamFailed):
        await rig.ask(max_tokens=5)  # each holds 63 micro-dollars; what was given up may be billed 6
    assert len(rig.one.calls) == attempts
    assert rig.entry.cost is not None
    assert rig.entry.cost.total_pico_usd == attempts * 6_000_000


async def test_rates_are_per_key_and_refusals_are_not_booked() -> None:
    rig = Rig(admission=limited(requests_per_minute=2))
    await rig.ask()
    await rig.ask()
    with pytest.raises(RateLimitExceeded):
        await rig.ask()
    assert len(rig.ledger.entries) == 2
