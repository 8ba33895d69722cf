"""The sums by provider equal what each provider counted itself, however requests used both."""

import contextlib
import random
from collections import Counter
from pathlib import Path

import pytest

from backends.protocol import Call
from backends.scripted import Outcome, Script
from backends.usage import Usage
from gateway.errors import RequestError
from gateway.pricing.price import price
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.sums import SumsQuery
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.rig import Rig

pytestmark = pytest.mark.integration
CHEAP = make_candidate("a", backend="one", provider="cheap-company", prices=make_prices(1.0, 4.0))
STRONG = make_candidate("b", backend="two", provider="strong-company", prices=make_prices(10.0, 40.0))
CASCADE = "version: 1\nrules: [{name: r, choose: {from: [a]}, cascade: {escalate_to: [b]}}]"
EITHER = "version: 1\nrules: [{name: r, choose: {from: [a, b]}}]"
FAULTS = (None, None, None, None, None, "unavailable", "overloaded")


class Bills:
    """Two providers that count by themselves, only complete answers, since nobody bills a rejection."""

    def __init__(self) -> None:
        self.chance = random.Random(5)
        self.pico_usd: Counter[str] = Counter()

    def script(self, candidate: str) -> Script:
        provider, prices = {"a": (CHEAP.provider, CHEAP.prices), "b": (STRONG.provider, STRONG.prices)}[candidate]
        assert prices is not None

        def answer(call: Call) -> Outcome:
            del call
            if fault := self.chance.choice(FAULTS):
                return Outcome(fault=fault)
            usage = Usage(input_tokens=self.chance.randrange(1, 9_000), output_tokens=self.chance.randrange(1, 900))
            self.pico_usd[provider] += price(usage, prices).total_pico_usd
            return Outcome(pieces=self.chance.choice(((), ("text",))), usage=usage)

        return answer


async def test_cascades_retries_and_fallbacks_reconcile_to_the_pico_dollar(tmp_path: Path) -> None:
    bills = Bills()
    rig = Rig(bills.script("a"), bills.script("b"))
    ways = [make_snapshot(rules, [CHEAP, STRONG]) for rules in (CASCADE, EITHER)]
    for number in range(120):
        rig.pipeline.snapshot = ways[number % 2]
        with contextlib.suppress(RequestError):
            await rig.ask()
    entries = rig.ledger.entries
    escalated = [one for one in entries if any(x.outcome.startswith("escalated") for x in one.attempts)]
    assert escalated
    assert any(one.provider != one.intent.provider for one in entries if one not in escalated)

    url = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"
    await migrate(url)
    engine = open_database(url)
    try:
        await SqlLedger(engine).insert(entries)
        sums = await SqlReports(engine).sums(SumsQuery(0, 2**62, ("provider",)))
    finally:
        await engine.dispose()
    assert {row.group["provider"]: row.cost_pico_usd for row in sums} == dict(bills.pico_usd)
    assert sum(row.requests for row in sums) == len(entries)
