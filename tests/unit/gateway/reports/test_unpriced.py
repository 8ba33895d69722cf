"""Requests without a known price must neither look free nor make other requests look cheap."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.cli.costs import sentences
from gateway.economics.rent import RentHistory
from gateway.instants import moment_of
from gateway.kept_answers.response_cache import BACKEND
from gateway.ledger.entry import Attempt, Cost, Entry, PaidTo, Status
from gateway.money import format_usd
from gateway.reports.books import Books, BooksOf
from gateway.reports.views import CostQuery, CostRow, PeriodQuery
from gateway.storage.database import open_database
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.stores import Adjustment, AdjustmentKind
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.newest_schema import make_newest_file
from tests.unit.gateway.ledger.builders import make_entry, make_intent, make_local_entry, request_id

NOW_US = make_intent(1).accepted_at_us + 60_000_000
SNAPSHOT = make_snapshot(candidates=[make_candidate("mid-hosted", prices=make_prices(1.0, 4.0))])
UNIT_PRICES = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "blended_usd_per_mtok",
    "cost_per_request_usd",
    "cost_per_successful_request_usd",
)
BY_MODEL = CostQuery(by="model")


def unpriced(number: int) -> Entry:
    nothing = {"cost": None, "cost_lower_pico_usd": None, "cost_upper_pico_usd": None}
    return make_entry(number, model="unheard-of", **nothing)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    make_newest_file(tmp_path / "x.db")
    found = open_database(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}")
    hosted = [make_entry(number, status=Status.completed if number % 3 else Status.failed) for number in range(9)]
    await SqlLedger(found).insert([*hosted, *(make_local_entry(number) for number in range(9, 14))])
    yield found
    await found.dispose()


@pytest.fixture
def books(database: AsyncEngine) -> Books:
    async def rented() -> list[RentHistory]:
        return []

    return Books(SqlReports(database), BooksOf(lambda: SNAPSHOT, rented, lambda: NOW_US))


async def row_of(books: Books, model: str) -> CostRow:
    return next(row for row in (await books.costs(BY_MODEL)).rows if row.group["model"] == model)


async def test_they_divide_no_sum_of_money(database: AsyncEngine, books: Books) -> None:
    before = (await books.costs(BY_MODEL)).total
    await SqlLedger(database).insert([unpriced(number) for number in range(100, 150)])
    after = (await books.costs(BY_MODEL)).total
    assert (after.requests, after.unpriced_requests) == (before.requests + 50, 50)
    row = await row_of(books, "unheard-of")
    for name in UNIT_PRICES:
        assert getattr(after, name) == getattr(before, name) is not None, name
        assert getattr(row, name) is None, name


async def test_nothing_was_saved_by_not_knowing_a_price(database: AsyncEngine, books: Books) -> None:
    before = (await books.costs(BY_MODEL)).savings
    await SqlLedger(database).insert([unpriced(number) for number in range(100, 150)])
    assert (await books.costs(BY_MODEL)).savings == before != []
    assert (await books.overview(PeriodQuery())).savings == before


async def test_once_corrected_they_count(database: AsyncEngine, books: Books) -> None:
    await SqlLedger(database).insert([unpriced(100)])
    correction = Adjustment(request_id(100), "reprice", "r", 8_000_000, "known now")
    assert await SqlAdjustments(database).book([correction], author="test") == 1
    row = await row_of(books, "unheard-of")
    assert (row.cost_usd, row.blended_usd_per_mtok) == (format_usd(8_000_000), format_usd(10_000_000_000))
    assert (await books.costs(BY_MODEL)).savings[0].covered_requests == 15


async def test_once_corrected_they_are_no_longer_told_as_unknown(database: AsyncEngine, books: Books) -> None:
    """The banner above the sums used to go on saying that they are in none of them."""
    await SqlLedger(database).insert([unpriced(100), unpriced(101)])
    correction = Adjustment(request_id(100), "reprice", "r", 8_000_000, "known now")
    assert await SqlAdjustments(database).book([correction], author="test") == 1
    assert (await row_of(books, "unheard-of")).unpriced_requests == 1
    found = await books.costs(BY_MODEL)
    assert found.total.unpriced_requests == 1
    closed = await books.costs(BY_MODEL.model_copy(update={"as_of": moment_of(0)}))
    assert closed.total.unpriced_requests == 2, "as it was told when the month was closed"


async def test_a_correction_is_of_no_token_class(database: AsyncEngine, books: Books) -> None:
    """What was booked without a price and corrected later has a sum, but no price per input or output token."""
    before = (await books.costs(BY_MODEL)).total
    await SqlLedger(database).insert([unpriced(100)])
    await SqlAdjustments(database).book(
        [Adjustment(request_id(100), "reprice", "r", 8_000_000, "known now")], author="test"
    )
    after = (await books.costs(BY_MODEL)).total
    row = await row_of(books, "unheard-of")
    for name in ("input_usd_per_mtok", "output_usd_per_mtok"):
        assert getattr(row, name) is None, "it is not $0"
        assert getattr(after, name) == getattr(before, name), "it makes the others no cheaper"


async def test_unknown_prices_make_other_requests_of_the_model_no_cheaper(database: AsyncEngine, books: Books) -> None:
    before, total = await row_of(books, "mid-hosted"), await books.costs(BY_MODEL)
    alike = [msgspec.structs.replace(unpriced(number), model="mid-hosted") for number in (60, 61)]
    await SqlLedger(database).insert(alike)
    after = await row_of(books, "mid-hosted")
    assert (after.unpriced_requests, after.cost_usd) == (2, before.cost_usd)
    for name in UNIT_PRICES:
        assert getattr(after, name) == getattr(before, name), name
    assert (await books.costs(BY_MODEL)).savings == total.savings, "what nobody knows the cost of was not saved"
    found = [Adjustment(one.intent.request_id, "reprice", "now", 243_000_000, "known") for one in alike]
    assert await SqlAdjustments(database).book(found, author="ada") == 2
    known = await row_of(books, "mid-hosted")
    assert Decimal(known.cost_usd) == Decimal(before.cost_usd) + Decimal("0.000486")
    for name in set(UNIT_PRICES) - {"cost_per_successful_request_usd"}:
        assert getattr(known, name) == getattr(before, name), name


async def test_cached_answers_beside_unknown_prices_make_no_token_cheaper(database: AsyncEngine, books: Books) -> None:
    """They have no tokens, and were taken for a share of the tokens whose price is unknown."""
    before, covered = await row_of(books, "mid-hosted"), (await books.costs(BY_MODEL)).savings[0].covered_requests
    alike = [msgspec.structs.replace(unpriced(number), model="mid-hosted") for number in range(60, 69)]
    answered = [make_entry(number, backend=BACKEND, cost=Cost(list_pico_usd=9)) for number in range(20, 29)]
    nothing = dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens"), 0)
    cached = [msgspec.structs.replace(one, **nothing) for one in answered]
    await SqlLedger(database).insert([*alike, *cached])
    after = await row_of(books, "mid-hosted")
    for name in ("input_usd_per_mtok", "output_usd_per_mtok", "blended_usd_per_mtok"):
        assert getattr(after, name) == getattr(before, name), name
    assert (await books.costs(BY_MODEL)).savings[0].covered_requests == covered


@pytest.mark.parametrize("kind", ["reprice", "refund"])
async def test_a_correction_of_what_had_a_price_gives_none_to_others(
    database: AsyncEngine, books: Books, kind: AdjustmentKind
) -> None:
    """With 9 priced and 9 unpriced requests, corrections of the priced ones used to halve every unit price."""
    before, covered = await row_of(books, "mid-hosted"), (await books.costs(BY_MODEL)).savings[0].covered_requests
    alike = [msgspec.structs.replace(unpriced(number), model="mid-hosted") for number in range(60, 69)]
    await SqlLedger(database).insert([*alike, unpriced(100)])
    found = [Adjustment(request_id(number), kind, "r", 81_000_000, "dearer") for number in range(9)]
    again = [replace(one, reference="s", amount_pico_usd=0) for one in found]
    for batch in (found, again):
        assert await SqlAdjustments(database).book(batch, author="ada") == 9
    assert await SqlAdjustments(database).book([Adjustment(request_id(100), "refund", "r", 7, "?")], author="ada") == 1
    after = await row_of(books, "mid-hosted")
    assert Decimal(after.cost_usd) == Decimal(before.cost_usd) + Decimal("0.000729")
    assert (before.cost_per_request_usd, after.cost_per_request_usd) == ("0.000243000000", "0.000324000000")
    assert (await books.costs(BY_MODEL)).savings[0].covered_requests == covered
    assert (await row_of(books, "unheard-of")).cost_per_request_usd is None


async def test_a_model_that_is_paid_by_time_has_a_blended_price_alone(books: Books) -> None:
    row = await row_of(books, "small-local")
    assert (row.input_usd_per_mtok, row.output_usd_per_mtok) == (None, None)
    assert row.blended_usd_per_mtok is not None


async def test_a_row_says_between_what_it_lies_and_what_of_it_nobody_bills(database: AsyncEngine, books: Books) -> None:
    exact = (await books.costs(BY_MODEL)).total
    assert exact.cost_lower_usd == exact.cost_upper_usd == exact.cost_usd
    assert exact.simulated_usd == format_usd(0)
    pico = 10**12
    simulated = make_entry(50, model="made-up", is_simulated=True)
    assert simulated.cost is not None
    died = make_entry(
        40, model="died", status=Status.orphaned, cost=None, cost_lower_pico_usd=pico, cost_upper_pico_usd=7 * pico
    )
    more = [died, simulated]
    await SqlLedger(database).insert(more)
    table = await books.costs(BY_MODEL)
    booked, made_up = Decimal(exact.cost_usd), Decimal(simulated.cost.total_pico_usd) / pico
    assert Decimal(table.total.cost_usd) == booked + made_up
    assert Decimal(table.total.simulated_usd) == made_up
    assert (await row_of(books, "made-up")).simulated_usd == format_usd(simulated.cost.total_pico_usd)
    assert Decimal(table.total.cost_lower_usd) == booked + made_up + 1
    assert Decimal(table.total.cost_upper_usd or 0) == booked + made_up + 7
    await SqlLedger(database).insert([unpriced(60)])
    unknown = (await books.costs(BY_MODEL)).total
    assert (unknown.cost_lower_usd, unknown.cost_upper_usd) == (table.total.cost_lower_usd, None)


async def test_an_attempt_at_a_simulated_model_is_told_beside_answers_that_are_real(
    database: AsyncEngine, books: Books
) -> None:
    bill = PaidTo("made-up", "made-up-1", True, 5, 5)
    refused = Attempt(1, "made-up", "simulated", "escalated:empty", 0.0, 1.0, 5, 200, bill)
    cost = Cost(output_pico_usd=20, other_pico_usd=5)
    await SqlLedger(database).insert([make_entry(70, cost=cost, attempts=(refused,))])
    table = await books.costs(BY_MODEL)
    assert (table.total.simulated_requests, table.total.simulated_usd) == (0, format_usd(5))
    assert (await row_of(books, "made-up")).simulated_usd == format_usd(5)
    assert any("simulated models" in sentence for sentence in sentences(table))
