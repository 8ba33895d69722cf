"""A provider's export is compared with a real ledger, booked once, and then agrees, on both databases."""

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import InvalidRequest
from gateway.ledger.entry import Attempt, Cost, PaidTo
from gateway.reports.reconcile_service import ReconcileService, book_differences, unbookable, unnamed, view_of
from gateway.reports.reconcile_views import ReconcileBody
from gateway.reports.reconciliation import Why
from gateway.storage.database import open_database
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.sums import SumsQuery
from tests.newest_schema import make_newest
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
HEADER = "start_time,start_time_iso,amount_value,amount_currency,line_item\n"
COST = 243_000_000
"""The cost of a builder's entry, in pico-USD."""


def line(dollars: str, model: str = "gpt-5.4-mini-2026-03-17") -> str:
    return f'0,2026-01-01T00:00:00+00:00,{dollars},usd,"{model}, output"\n'


async def test_differences_are_booked_once_and_then_the_month_agrees(engine: AsyncEngine) -> None:
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    entries = [make_entry(number, intent=make_intent(number, accepted_at_us=at + number)) for number in range(400)]
    simulated = make_entry(1000, intent=make_intent(1000, accepted_at_us=at), is_simulated=True)
    elsewhere = make_entry(1001, intent=make_intent(1001, accepted_at_us=at), provider="azure")
    await SqlLedger(engine).insert([*entries, simulated, elsewhere])
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    export = HEADER + line("0.15") + line("7", "o9-research")

    compared = await service.compare("openai", export)
    view = view_of(compared)
    assert (view.our_usd, view.their_usd) == ("0.097200000000", "7.150000000000")
    assert view.agrees is False
    assert [row.model for row in view.rows] == ["gpt-5-4-mini", "o9-research"]
    assert "not in our books" in view.rows[1].likely_reason

    assert await book_differences(compared, books, reference="INV-7", author="ada") == 1
    assert await book_differences(compared, books, reference="INV-7", author="ada") == 0
    again = await service.reconcile(ReconcileBody(provider="openai", export=HEADER + line("0.15")))
    assert again.agrees is True
    assert again.our_usd == again.their_usd
    beside = await service.compare("azure", HEADER + line("0.15"))
    assert await book_differences(beside, books, reference="INV-7", author="ada") == 1, "its own invoice of that number"
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_a_difference_is_bookable_where_only_an_attempt_was_paid(engine: AsyncEngine) -> None:
    """Without requests, and at no cost after the first booking, the second was told to be both new and impossible."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    to = PaidTo("azure", "gpt-5.4-mini", False, COST, COST)
    paid = Attempt(1, "mid", "azure", "UpstreamTimeout", 0.0, 9.0, COST, None, to)
    cost = Cost(other_pico_usd=COST, list_pico_usd=COST)
    await SqlLedger(engine).insert(
        [make_entry(1, intent=make_intent(1, accepted_at_us=at), cost=cost, attempts=(paid,))]
    )
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    for reference, dollars in (("INV-7", "0"), ("INV-8", "0.15")):
        compared = await service.compare("azure", HEADER + line(dollars))
        assert unbookable(compared) == 0
        assert await book_differences(compared, books, reference=reference, author="ada") == 1
    assert view_of(await service.compare("azure", HEADER + line("0.15"))).agrees


async def test_a_difference_that_two_book_at_the_same_time_is_booked_once(engine: AsyncEngine) -> None:
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    await SqlLedger(engine).insert([make_entry(1, intent=make_intent(1, accepted_at_us=at))])
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    compared = await service.compare("openai", HEADER + line("0.15"))
    booked = [book_differences(compared, books, reference="INV-7", author=name) for name in ("ada", "bob", "eve")]
    assert sorted(await asyncio.gather(*booked)) == [0, 0, 1]
    [total] = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ()))
    assert total.corrected_cost_pico_usd == 150_000_000_000


async def test_a_difference_is_shared_by_all_whose_requests_it_is_of(engine: AsyncEngine) -> None:
    """In proportion to their costs, exactly: the most expensive team of the day used to pay all of it."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    teams = ["ads"] * 1 + ["search"] * 2 + [None] * 4
    hours = [at + number % 3 * 3_600_000_000 for number in range(7)]
    intents = [make_intent(number, accepted_at_us=hours[number], team=team) for number, team in enumerate(teams)]
    await SqlLedger(engine).insert([make_entry(number, intent=intent) for number, intent in enumerate(intents)])
    service, books, reports = ReconcileService(SqlReports(engine)), SqlAdjustments(engine), SqlReports(engine)
    for reference, dollars in (("INV-7", "0.003"), ("INV-8", "0.001")):
        compared = await service.compare("openai", HEADER + line(dollars) + line("7", "o9-research"))
        assert unbookable(compared) == 1
        assert await book_differences(compared, books, reference=reference, author="ada") == 1
        sums = await reports.sums(SumsQuery(at, at + 86_400_000_000, ("team",)))
        paid = {row.group["team"]: row.corrected_cost_pico_usd for row in sums}
        total = int(float(dollars) * 1e12)
        assert sum(paid.values()) == total
        for team, share in ((None, 4), ("search", 2), ("ads", 1)):
            assert abs(paid[team] - total * share / 7) < 10
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_a_difference_of_what_has_no_price_is_shared_by_tokens(engine: AsyncEngine) -> None:
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    unpriced = {"cost": None, "cost_lower_pico_usd": 0, "cost_upper_pico_usd": None}
    for number, (team, tokens) in enumerate((("ads", 100), ("search", 400))):
        intent = make_intent(number, accepted_at_us=at, team=team)
        await SqlLedger(engine).insert([make_entry(number, intent=intent, output_tokens=tokens, **unpriced)])
    compared = await ReconcileService(SqlReports(engine)).compare("openai", HEADER + line("15"))
    assert await book_differences(compared, SqlAdjustments(engine), reference="INV-7", author="ada") == 1
    sums = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ("team",)))
    assert [row.adjustment_pico_usd for row in sums] == [6 * 10**12, 9 * 10**12]


async def test_what_has_no_price_pays_its_part_of_a_bill(engine: AsyncEngine) -> None:
    """The others paid for it: whoever called a tool without a price was charged nothing, and once it was charged, twice
    by each further bill."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    priced = {"cost": Cost(output_pico_usd=4 * 10**12, list_pico_usd=4 * 10**12)}
    unpriced = {"cost": None, "cost_lower_pico_usd": 0, "cost_upper_pico_usd": None}
    for number, (team, given) in enumerate((("ads", priced), ("search", unpriced), ("search", priced))):
        intent = make_intent(number, accepted_at_us=at, team=team)
        await SqlLedger(engine).insert([make_entry(number, intent=intent, **given)])
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    bills = ("INV-7", "14", (6, 8)), ("INV-8", "20", (8, 12)), ("INV-9", "14", (6, 8)), ("INV-10", "6", (3, 3))
    for reference, dollars, paid in bills:
        compared = await service.compare("openai", HEADER + line(dollars))
        assert await book_differences(compared, books, reference=reference, author="ada") == 1
        sums = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ("team",)))
        assert {row.group["team"]: row.corrected_cost_pico_usd for row in sums} == {
            team: dollars * 10**12 for team, dollars in zip(("ads", "search"), paid, strict=True)
        }


async def test_what_a_wrong_export_took_out_comes_back_to_whose_it_was(engine: AsyncEngine) -> None:
    """It used to be shared by tokens, and whoever had used few expensive ones paid less than before."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    for number, (team, dollars) in enumerate((("ads", 9), ("search", 1))):
        cost = Cost(output_pico_usd=dollars * 10**12, list_pico_usd=dollars * 10**12)
        intent = make_intent(number, accepted_at_us=at, team=team)
        await SqlLedger(engine).insert([make_entry(number, intent=intent, cost=cost, output_tokens=100)])
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    for reference, dollars in (("INV-7", "0"), ("INV-8", "10")):
        compared = await service.compare("openai", HEADER + line(dollars))
        assert await book_differences(compared, books, reference=reference, author="ada") == 1
    sums = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ("team",)))
    paid = {row.group["team"]: row.corrected_cost_pico_usd for row in sums}
    assert paid == {"ads": 9 * 10**12, "search": 10**12}


async def test_the_last_digit_goes_to_the_same_team_whoever_shipped_first(tmp_path: Path) -> None:
    """Two workers ship in any order, and the same requests are to cost the same in every database."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    entries = [make_entry(n, intent=make_intent(n, accepted_at_us=at, team=f"team {n}")) for n in range(3)]
    found: list[list[int]] = []
    for order in (1, -1):
        await make_newest(url := f"sqlite+aiosqlite:///{tmp_path / str(order)}.db")
        engine = open_database(url)
        for entry in entries[::order]:
            await SqlLedger(engine).insert([entry])
        compared = await ReconcileService(SqlReports(engine)).compare("openai", HEADER + line("1"))
        assert await book_differences(compared, SqlAdjustments(engine), reference="INV-7", author="ada") == 1
        sums = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ("team",)))
        found.append([row.corrected_cost_pico_usd for row in sums])
        await engine.dispose()
    assert found[0] == found[1]


async def test_an_export_of_nothing_is_refused(engine: AsyncEngine) -> None:
    service = ReconcileService(SqlReports(engine))
    for text in (HEADER, "hello"):
        with pytest.raises(InvalidRequest):
            await service.reconcile(ReconcileBody(provider="openai", export=text))


async def test_a_fee_of_searches_is_booked_with_the_model_that_searched(engine: AsyncEngine) -> None:
    """A bill has a separate line for it, so the model's row used to lack the amount, and --book subtracted it."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    cost = Cost(0, 0, 0, 50_000_000_000, 30_000_000_000, 0, 80_000_000_000)
    searched = make_entry(1, intent=make_intent(1, accepted_at_us=at), cost=cost, web_searches=3)
    await SqlLedger(engine).insert([searched])
    service = ReconcileService(SqlReports(engine))
    compared = await service.compare("openai", HEADER + line("0.05") + line("0.032", "web search tool calls"))
    assert [(row.ours.model, row.difference_pico_usd) for row in compared.rows] == [("gpt-5-4-mini", 2_000_000_000)]
    assert await book_differences(compared, SqlAdjustments(engine), reference="INV-7", author="ada") == 1
    [total] = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000))
    assert total.corrected_cost_pico_usd == 82_000_000_000


async def test_days_at_the_ends_of_a_period_are_compared_though_they_have_no_line(engine: AsyncEngine) -> None:
    noon = datetime(2026, 1, 3, 12, tzinfo=UTC)
    at = int(noon.timestamp()) * 1_000_000
    await SqlLedger(engine).insert([make_entry(1, intent=make_intent(1, accepted_at_us=at))])
    service = ReconcileService(SqlReports(engine))
    assert len((await service.compare("openai", HEADER + line("1"))).rows) == 1
    body = ReconcileBody(provider="openai", export=HEADER + line("1"), since=date(2026, 1, 1), until=date(2026, 1, 4))
    view = await service.reconcile(body)
    assert (view.first_day, view.last_day) == (date(2026, 1, 1), date(2026, 1, 3))
    assert [(row.day.day, row.difference_usd) for row in view.rows] == [(1, "1.000000000000"), (3, "-0.000243000000")]
    with pytest.raises(InvalidRequest, match="No line of the export"):
        await service.compare("openai", HEADER + line("1"), date(2026, 2, 1), date(2026, 3, 1))


AZURE = "date,meterCategory,meterSubCategory,meterName,chargeType,billingCurrency,costInBillingCurrency\n"
FOUNDRY = "01/01/2026,Foundry Models,Azure OpenAI GPT5"


async def test_a_clouds_meters_are_compared_and_booked_with_the_deployments_that_they_bill(engine: AsyncEngine) -> None:
    """Deployments have names of your own, and two regions' are billed as one model."""
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    names = ("azure/chat-eu", "azure/chat-us", "azure/gpt-5.4-nano", "azure/codex")
    entries = [
        make_entry(n, intent=make_intent(n, accepted_at_us=at), provider="azure", upstream_model=name)
        for n, name in enumerate(names)
    ]
    await SqlLedger(engine).insert(entries)
    priced_as = {"azure/chat-eu": "openai/gpt-5.4-mini", "azure/chat-us": "openai/gpt-5.4-mini"}
    service = ReconcileService(SqlReports(engine), lambda provider: priced_as if provider == "azure" else {})
    export = AZURE + (
        f"{FOUNDRY},5.4 mini inp Gl 1M Tokens,Usage,USD,0.0003\n"
        f"{FOUNDRY},5.4 mini cd Inp Dz 1M Tokens,Usage,USD,0.000186000001\n"
        f"{FOUNDRY},5.4 nano opt Gl 1M Tokens,Usage,USD,0.02\n"
        f"{FOUNDRY},5.3 codex opt Gl 1M Tokens,Usage,USD,0.5\n"
    )
    compared = await service.compare("azure", export)
    assert [(row.ours.model, row.ours.requests, row.difference_pico_usd, row.why) for row in compared.rows] == [
        ("codex", 1, -COST, Why.another_name),
        ("gpt-5-3-codex", 0, 500_000_000_000, Why.not_ours),
        ("gpt-5-4-mini", 2, 1, Why.agrees),
        ("gpt-5-4-nano", 1, 20_000_000_000 - COST, Why.unexplained),
    ]
    books = SqlAdjustments(engine)
    assert await book_differences(compared, books, reference="INV-7", author="ada") == 2
    assert (unbookable(compared), unnamed(compared)) == (1, 1)
    paid = await SqlReports(engine).sums(SumsQuery(at, at + 86_400_000_000, ("upstream_model",)))
    costs = {row.group["upstream_model"]: row.corrected_cost_pico_usd for row in paid}
    assert (costs["azure/codex"], costs["azure/gpt-5.4-nano"]) == (COST, 20_000_000_000)
    assert costs["azure/chat-eu"] + costs["azure/chat-us"] == 486_000_001

    named = {"gpt 5.3 codex": "codex"}
    body = ReconcileBody(provider="azure", export=export, named=named)
    view = await service.reconcile(body)
    assert next((row.model, row.difference_usd) for row in view.rows) == ("codex", "0.499757000000")
    compared = await service.compare("azure", export, named=named)
    assert await book_differences(compared, books, reference="INV-7", author="ada") == 1
    assert view_of(await service.compare("azure", export, named=named)).difference_usd == "0.000000000000"
    with pytest.raises(
        InvalidRequest, match="no model of ours is called 'gpt-9' on these days; they are codex, gpt-5-4-"
    ):
        await service.compare("azure", export, named={"gpt 5.3 codex": "gpt-9"})
    with pytest.raises(InvalidRequest, match=r"is called '5.3 codecs' on these days; it has gpt-5-3-codex\."):
        await service.compare("azure", export, named={"5.3 codecs": "codex"})
