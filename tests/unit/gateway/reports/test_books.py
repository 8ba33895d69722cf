"""The admin API's reports over a real SQLite ledger of the demonstration's entries, checked against sums by hand."""

import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.cli.demo.month import write_demo_month
from gateway.config.home import Home
from gateway.errors import InvalidRequest
from gateway.instants import DAY_US, HOUR_US, microseconds, moment_of
from gateway.money import format_usd, parse_usd
from gateway.reports.forecast_views import DailyQuery, ForecastQuery
from gateway.reports.replay_service import ReplayService
from gateway.reports.tables import Cell, encode
from gateway.reports.views import BooksQuery, BreakEvenQuery, CostQuery, CostRow, PeriodQuery
from gateway.reports.what_if_views import WhatIfQuery
from gateway.storage.database import open_database
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.feedback import SqlFeedback
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.stores import Adjustment
from tests.unit.gateway.ledger.builders import make_intent, make_local_entry
from tests.unit.gateway.reports.month import END, NOW_US, REQUESTS, Month, services


async def test_costs_by_team_are_the_entries_own_sums(month: Month) -> None:
    table = await month.books.costs(CostQuery(by="team", since=END - timedelta(days=31), until=END))
    by_hand: dict[str | None, int] = {}
    for entry in month.entries:
        assert entry.cost is not None
        by_hand[entry.intent.team] = by_hand.get(entry.intent.team, 0) + entry.cost.total_pico_usd
    assert {row.group["team"]: row.cost_usd for row in table.rows} == {
        team: format_usd(pico) for team, pico in by_hand.items()
    }
    assert sum(Decimal(row.cost_usd) for row in table.rows) == Decimal(table.total.cost_usd)
    assert table.total.requests == len(month.entries)


async def test_costs_say_when_the_books_begin_whatever_they_are_asked_for(month: Month) -> None:
    """So that a period that they cover only in part is not compared with a whole one."""
    first_us = min(entry.intent.accepted_at_us for entry in month.entries)
    for query in (CostQuery(until=END), CostQuery(team="legal", since=END - timedelta(days=1), costs_alone=True)):
        begin = (await month.books.costs(query)).books_begin
        assert begin is not None
        assert begin <= moment_of(first_us) < begin + timedelta(hours=1)


async def test_costs_alone_are_the_same(month: Month) -> None:
    whole, short = [await month.books.costs(CostQuery(by="team", until=END, costs_alone=one)) for one in (False, True)]
    percentiles = [name for name in CostRow.model_fields if name.startswith(("time_to_first_token", "decode"))]
    unknown = dict.fromkeys(percentiles)
    assert whole.total.time_to_first_token_p95_seconds is not None
    assert short.rows == [row.model_copy(update=unknown) for row in whole.rows]
    assert short.total == whole.total.model_copy(update=unknown)
    assert whole.savings
    assert (short.savings, short.idle) == ([], None)


async def test_a_period_that_ends_before_there_were_any_books_is_refused_in_words(month: Month) -> None:
    """There are no thirty days before the first day of the calendar."""
    with pytest.raises(InvalidRequest, match="must be before"):
        await month.books.costs(CostQuery(by="team", until=datetime(1, 1, 1, tzinfo=UTC)))


async def test_a_cost_table_says_what_nobody_owns_and_what_was_saved(month: Month) -> None:
    table = await month.books.costs(CostQuery(by="team", until=END))
    teamless = sum(e.cost.total_pico_usd for e in month.entries if e.cost is not None and e.intent.team is None)
    assert table.unallocated_usd == format_usd(teamless)
    assert table.unallocated_share == pytest.approx(teamless / float(Decimal(table.total.cost_usd) * 10**12))
    assert (await month.books.costs(CostQuery(by="model", until=END))).unallocated_usd is None
    of_one = await month.books.costs(CostQuery(by="team", team="red", until=END))
    of_none = await month.books.costs(CostQuery(by="team", team="", until=END))
    assert (of_none.total.cost_usd, [row.group["team"] for row in of_none.rows]) == (table.unallocated_usd, [None])
    assert of_one.unallocated_usd is None, "what no team owns was not asked for: it is not $0"
    assert len(table.savings) == 2
    assert table.savings == (await month.books.overview(PeriodQuery(until=END))).savings
    assert table.shadow_usd == format_usd(0)
    assert (await month.books.costs(CostQuery(by="model", team="legal", until=END))).savings == []
    successful = table.total.successful_requests
    assert successful == sum(entry.status == "completed" for entry in month.entries)
    assert table.total.cost_per_successful_request_usd == format_usd(
        round(Decimal(table.total.cost_usd) * 10**12 / successful)
    )


async def test_a_report_of_more_rows_than_anybody_reads_is_refused_in_a_sentence(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A month of 2,000 keys by key, day and model used to be 2 GB of rows."""
    query = CostQuery(by="day,model", until=END)
    rows = len((await month.books.costs(query)).rows)
    monkeypatch.setattr("gateway.reports.books.MOST_ROWS", rows)
    assert len((await month.books.costs(query)).rows) == rows
    monkeypatch.setattr("gateway.reports.books.MOST_ROWS", rows - 1)
    with pytest.raises(
        InvalidRequest, match=f"more than {rows - 1:,} rows. Choose a shorter period.*; the FOCUS export"
    ):
        await month.books.costs(query)
    monkeypatch.setattr("gateway.reports.books.MOST_ROWS", 0)
    with pytest.raises(InvalidRequest, match=r"fewer dimensions or a filter\.$"):  # FOCUS has no end users
        await month.books.costs(CostQuery(by="end_user", until=END))


async def test_the_focus_export_equals_the_screen_to_the_pico_dollar(month: Month) -> None:
    files = services(month).files
    asked = BooksQuery(since=END - timedelta(days=31, hours=5, minutes=13), until=END)
    rows = [row async for page in (await files.focus(asked)).pages for row in page.rows]
    screen = await month.books.overview(asked)
    assert screen.idle is not None
    effective = sum((Decimal(str(row["EffectiveCost"])) for row in rows), Decimal(0))
    assert effective == Decimal(screen.total.cost_usd) + Decimal(screen.idle.idle_usd)
    rent = sum(Decimal(str(row["BilledCost"])) for row in rows if row["ChargeCategory"] == "Purchase")
    assert rent == Decimal(screen.idle.rent_usd)
    by_team = {row.group["team"]: Decimal(row.cost_usd) for row in (await month.books.costs(asked_by_team())).rows}
    for team, cost in by_team.items():
        theirs = [row for row in rows if row["SubAccountId"] == team and row["x_KeyId"] is not None]
        assert sum(Decimal(str(row["EffectiveCost"])) for row in theirs) == cost


async def test_the_focus_export_is_made_day_by_day_in_order(month: Month) -> None:
    since = END - timedelta(days=31, hours=5, minutes=13)
    whole = [page async for page in (await services(month).files.focus(BooksQuery(since=since, until=END))).pages]
    assert len(whole) == 31
    for page in whole:
        assert len({str(row["ChargePeriodStart"])[:10] for row in page.rows}) <= 1, "no more than a day is held"
    starts = [row["ChargePeriodStart"] for page in whole for row in page.rows]
    assert starts == sorted(starts, key=str)


async def test_a_day_of_focus_is_of_one_moment_with_its_idle_time(month: Month, home: Path, tmp_path: Path) -> None:
    """What was booked after the first page was read was both used and unused."""
    shutil.copy(home / "demo" / "breakeven.db", tmp_path)
    database = open_database(f"sqlite+aiosqlite:///{tmp_path}/breakeven.db")
    at_us = NOW_US - HOUR_US
    asked = BooksQuery(since=moment_of(at_us - DAY_US), until=END)
    pages = (await services(month._replace(database=database)).files.focus(asked)).pages
    first = await anext(pages)
    await SqlLedger(database).insert([make_local_entry(intent=make_intent(1, accepted_at_us=at_us))])
    found = [first, *[page async for page in pages]]
    await database.dispose()
    rows = [row for page in found for row in page.rows if row["ServiceName"] == "Own GPUs"]
    effective = sum(parse_usd(str(row["EffectiveCost"])) for row in rows)
    assert effective == sum(parse_usd(str(row["BilledCost"])) for row in rows), "used and unused are the rent"


async def test_focus_tells_what_was_corrected_after_a_month(month: Month, home: Path, tmp_path: Path) -> None:
    shutil.copy(home / "demo" / "breakeven.db", tmp_path)
    database = open_database(f"sqlite+aiosqlite:///{tmp_path}/breakeven.db")
    october, november = (month.entries[place].intent.request_id for place in (0, -1))
    for request_id, amount, day in (
        (october, 5, "2026-10-31"),
        (october, -5, "2026-11-01"),
        (november, 7, "2026-11-02"),
    ):
        at_us = microseconds(datetime.fromisoformat(day).replace(tzinfo=UTC))
        credit = Adjustment(request_id, "refund", day, amount, "an outage")
        books = SqlAdjustments(database, now_us=lambda at_us=at_us: at_us, trusts_clock=True)
        assert await books.book([credit], author="test") == 1
    found: list[list[tuple[int, Cell]]] = []
    for as_of in (None, "2026-11-02", "2026-11-01"):
        asked = BooksQuery.model_validate({"since": "2026-10-01", "until": END, "as_of": as_of})
        pages = (await services(month._replace(database=database)).files.focus(asked)).pages
        rows = [row async for page in pages for row in page.rows if row["ChargeCategory"] == "Adjustment"]
        found.append([(parse_usd(str(row["EffectiveCost"])), row["ChargeClass"]) for row in rows])
    await database.dispose()
    assert found == [[(5, None), (-5, "Correction"), (7, None)], [(5, None), (-5, "Correction")], [(5, None)]]


async def test_a_gpu_that_is_not_there_yet_is_compared_on_the_traffic_that_would_move(month: Month) -> None:
    ask = services(month).what_ifs.what_if
    one = await ask(WhatIfQuery(until=END, gpu="nvidia-h100-sxm-80gb", model="llama-3.1-8b-instruct"))
    [answer] = one.answers
    assert Decimal(answer.saving_usd) == Decimal(answer.hosted_usd) - Decimal(answer.month_usd)
    assert answer.price_source.startswith("Lambda")
    assert one.refused == []
    dearest = max({row.model for row in await SqlReports(month.database).hourly_traffic(0, NOW_US)})
    part = await ask(WhatIfQuery(until=END, gpu=answer.gpu, model=answer.model, moved=f" {dearest} ,"))
    assert 0 < part.requests_per_day < one.requests_per_day
    everything = await ask(WhatIfQuery(until=END, model="llama-3.3-70b-instruct-fp8"))
    assert {refused.gpu for refused in everything.refused} >= {"nvidia-l4-24gb", "nvidia-l40s-48gb"}
    savings = [Decimal(row.saving_usd) for row in everything.answers]
    assert savings == sorted(savings, reverse=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gpu": "abacus", "model": "llama-3.1-8b-instruct"}, "'abacus' is not in the table"),
        ({"gpu": "nvidia-l4-24gb", "model": "llama-3.3-70b-instruct-fp8"}, "use more GPUs per replica"),
        ({"moved": "nobody"}, "there was:"),
        ({"hosted_model": "nobody"}, "not a hosted model"),
    ],
)
async def test_a_what_if_that_cannot_be_says_why(month: Month, wrong: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await services(month).what_ifs.what_if(WhatIfQuery.model_validate({"until": END, **wrong}))


def asked_by_team() -> CostQuery:
    return CostQuery(by="team", since=END - timedelta(days=31, hours=5, minutes=13), until=END)


async def test_every_report_is_a_file_too(month: Month) -> None:
    files = services(month).files
    costs = await files.costs(asked_by_team())
    assert [column.name for column in costs.columns][:2] == ["team", "requests"]
    assert sum(Decimal(str(row["cost_usd"])) for row in costs.rows) == Decimal(
        (await month.books.costs(asked_by_team())).total.cost_usd
    )
    period = PeriodQuery(until=END)
    for table in (
        costs,
        await files.savings(CostQuery(until=END)),
        await files.utilisation(period),
        await files.break_even(BreakEvenQuery(until=END)),
        await files.forecast(ForecastQuery(days=3)),
        await files.anomalies(DailyQuery()),
    ):
        assert encode(table, "csv").count(b"\r\n") == len(table.rows) + 1
        assert encode(table, "parquet")[:4] == b"PAR1"


async def test_token_prices_leave_gpu_priced_tokens_out(month: Month) -> None:
    total = (await month.books.costs(CostQuery(by="team", until=END))).total
    hosted = [entry for entry in month.entries if not entry.gpu_seconds and entry.cost is not None]
    output = sum(entry.cost.output_pico_usd for entry in hosted if entry.cost is not None)
    tokens = sum(entry.output_tokens for entry in hosted)
    assert total.output_usd_per_mtok is not None
    assert Decimal(total.output_usd_per_mtok) == pytest.approx(Decimal(output) / tokens / 10**6, rel=Decimal("1e-9"))


async def test_the_overview_adds_up(month: Month) -> None:
    found = await month.books.overview(PeriodQuery(until=END))
    spend = sum(Decimal(point.cost_usd) for point in found.spend)
    assert spend == sum(Decimal(row.cost_usd) for row in found.models) == Decimal(found.total.cost_usd)
    teamless = [entry for entry in month.entries if entry.intent.team is None]
    assert found.unallocated_usd == format_usd(sum(e.cost.total_pico_usd for e in teamless if e.cost is not None))
    assert (found.shadow_usd, found.judge_usd) == (format_usd(0), format_usd(0))
    for one in found.savings:
        idle = Decimal(found.idle.idle_usd) if found.idle else Decimal(0)
        assert Decimal(one.saved_usd) == pytest.approx(
            Decimal(one.would_have_cost_usd) - Decimal(found.total.cost_usd) - idle, abs=Decimal("1e-9")
        )


async def test_an_empty_period_is_refused_in_words(month: Month) -> None:
    with pytest.raises(InvalidRequest, match="before"):
        await month.books.costs(CostQuery(since=END, until=END))


async def test_no_traffic_is_no_division_by_zero(month: Month) -> None:
    quiet = PeriodQuery(since=END - timedelta(days=900), until=END - timedelta(days=800))
    found = await month.books.overview(quiet)
    assert found.total.requests == 0
    assert found.total.blended_usd_per_mtok is None
    with pytest.raises(InvalidRequest, match="no traffic"):
        await month.break_even.break_even(BreakEvenQuery(since=quiet.since, until=quiet.until))


async def test_break_even_curves_pass_through_the_report(month: Month) -> None:
    view = await month.break_even.break_even(BreakEvenQuery(until=END))
    here = view.report.observed.requests_per_day
    nearest = min(view.curve, key=lambda point: abs(point.requests_per_day - here))
    scale = nearest.requests_per_day / here
    assert nearest.hosted_usd == pytest.approx(float(view.report.month.all_hosted_usd) * scale, rel=1e-6)
    assert [point.requests_per_day for point in view.curve] == sorted(point.requests_per_day for point in view.curve)
    for point in view.curve:
        assert point.owned_low_usd is not None
        assert point.owned_high_usd is not None
        assert point.owned_low_usd <= point.owned_usd * (1 + 1e-9)
        assert point.owned_usd <= point.owned_high_usd + 0.05 * point.hosted_usd


async def test_what_ifs_move_the_answer_the_right_way(month: Month) -> None:
    ask = month.break_even.break_even
    plain = (await ask(BreakEvenQuery(until=END))).report.month
    dearer = (await ask(BreakEvenQuery(until=END, hosted_price_factor=10))).report.month
    assert float(dearer.all_hosted_usd) == pytest.approx(10 * float(plain.all_hosted_usd), rel=1e-3)
    assert dearer.plan_saving_usd > plain.plan_saving_usd
    cheap = (await ask(BreakEvenQuery(until=END, gpu_hour_usd=0.001))).report.month
    assert cheap.plan_saving_usd > plain.plan_saving_usd
    with pytest.raises(InvalidRequest, match="not a hosted model"):
        await ask(BreakEvenQuery(until=END, hosted_model="nothing"))


async def test_a_purchase_is_paid_back_by_the_hosted_calls_it_saves(month: Month) -> None:
    ask = month.break_even.break_even
    plain = await ask(BreakEvenQuery(until=END))
    assert plain.payback is None
    rent = float(plain.report.staircase[0].rent_usd)
    saved_a_month = float(plain.report.month.plan_saving_usd) + rent
    bought = (await ask(BreakEvenQuery(until=END, purchase_usd=saved_a_month * 9.5))).payback
    assert bought is not None
    assert bought.months == 10
    never = (await ask(BreakEvenQuery(until=END, purchase_usd=saved_a_month * 30, yearly_price_factor=0.05))).payback
    assert never is not None
    assert never.months is None


async def test_a_replay_under_the_same_rules_moves_nothing_of_their_days(month: Month) -> None:
    """The rules changed on day 18: the last week was decided under those of rules.yaml."""
    service = ReplayService(
        SqlLedger(month.database), SqlFeedback(month.database), lambda document: month.snapshot, lambda: NOW_US
    )
    same = await service(month.deployment.rules, None, None)
    assert same.requests > 0
    assert same.moved_requests == 0
    assert same.cost_before_usd == same.cost_after_usd


async def test_a_replay_under_other_rules_says_who_moves_and_for_how_much(month: Month) -> None:
    text = month.deployment.rules_text
    default = text.rindex("choose:")
    document = month.deployment.catalogue.parse(text[:default] + "choose: {from: hosted, by: quality}", file="test")
    snapshot = month.deployment.catalogue.snapshot(
        document, month.deployment.prices, classifier_version="test", at_us=NOW_US
    )
    service = ReplayService(
        SqlLedger(month.database), SqlFeedback(month.database), lambda document: snapshot, lambda: NOW_US
    )
    found = await service(document, None, None)
    assert found.refused_requests == 0
    assert found.moved_requests == sum(move.requests for move in found.moves) > 0
    change = sum(Decimal(move.cost_change_usd) for move in found.moves)
    assert Decimal(found.cost_after_usd) - Decimal(found.cost_before_usd) == change


async def test_the_demonstration_is_marked_everywhere(month: Month) -> None:
    assert all(entry.is_simulated and "demo" in entry.intent.tags for entry in month.entries)
    assert abs(len(month.entries) - REQUESTS) < REQUESTS / 4
    versions = {entry.intent.decision.rules_version.partition("-")[0] for entry in month.entries}
    assert len(versions) == 2
    assert any(len(entry.attempts) > 1 for entry in month.entries), "the outage is not in the month"


async def test_a_second_demonstration_leaves_the_first_alone(month: Month, home: Path) -> None:
    assert await write_demo_month(Home(home), now=END, requests=REQUESTS) is None


async def test_a_made_up_request_was_answered_when_its_first_token_came(month: Month) -> None:
    for entry in month.entries:
        first, last = entry.time_to_first_token_seconds, entry.attempts[-1]
        if first is not None:
            assert last.started_after_seconds + last.lasted_seconds == pytest.approx(first, abs=0.25)


def test_a_volume_of_nearly_nothing_is_refused() -> None:
    """With 1e-308 of the traffic, the cost of a request used to be infinite, and the answer a bare 500."""
    with pytest.raises(ValidationError, match="greater than or equal to"):
        BreakEvenQuery(volume_factor=1e-308)
