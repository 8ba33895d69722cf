"""A part of a cost report's groups, the others as one row, any order of all of them, and what they cost before."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from gateway.errors import InvalidRequest
from gateway.reports.cost_rows import Grouped, rows_of
from gateway.reports.row_order import FIGURES
from gateway.reports.views import ALL, ComparedQuery, CostRow, CostTable, CostTableQuery, Overview, Shown
from gateway.sums import Dimension, Sums, SumsQuery
from tests.unit.gateway.reports.month import END, Month

ADDED = [name for name, field in CostRow.model_fields.items() if field.annotation is int] + ["gpu_seconds"]
DOLLARS = ["cost_usd", "list_cost_usd", "corrections_usd", "simulated_usd", "cost_lower_usd"]


async def asked(month: Month, **query: Any) -> CostTable:
    whole = {"since": END - timedelta(days=31), "until": END}
    return await month.books.costs(CostTableQuery.model_validate(whole | query))


@pytest.mark.parametrize("by", ["team", "key", "key,model", "day,model", "status"])
@pytest.mark.parametrize("costs_alone", [True, False])
async def test_rows_and_others_add_up_to_the_total_to_the_pico_dollar(
    month: Month, by: str, *, costs_alone: bool
) -> None:
    whole = await asked(month, by=by, costs_alone=costs_alone)
    assert (whole.others, whole.groups) == (None, len(whole.rows))
    for limit, offset in ((1, 0), (2, 1), (1, 10_000), (whole.groups, 1)):
        part = await asked(month, by=by, costs_alone=costs_alone, limit=limit, offset=offset)
        assert part.rows == whole.rows[offset : offset + limit]
        assert (part.groups, part.total, part.key_names) == (whole.groups, whole.total, whole.key_names)
        if len(part.rows) == whole.groups:
            assert part.others is None
            continue
        assert part.others is not None
        summed = [*part.rows, part.others]
        for name in ADDED:
            assert sum(getattr(row, name) for row in summed) == pytest.approx(getattr(whole.total, name), rel=1e-9)
        for name in DOLLARS:
            assert sum(Decimal(getattr(row, name)) for row in summed) == Decimal(getattr(whole.total, name)), name


async def test_the_dearest_are_there_whatever_the_order_and_the_part(month: Month) -> None:
    """A chart needs them besides the rows of any page."""
    whole = await asked(month, by="key")
    assert whole.dearest == []
    part = await asked(month, by="key", order="key", limit=1, offset=3, dearest=2)
    assert part.dearest == whole.rows[:2]
    assert len(part.rows) == 1


async def test_the_others_are_priced_as_one_group_of_them_would_be(month: Month) -> None:
    """If all groups are left out, their sum is the total, unit prices included."""
    part = await asked(month, by="key", limit=1, offset=10_000)
    assert part.rows == []
    assert part.others is not None
    percentiles = dict.fromkeys(name for name in CostRow.model_fields if name.startswith(("time_to_first", "decode")))
    assert part.others == part.total.model_copy(update=percentiles)


@pytest.mark.parametrize("column", [*FIGURES, "team"])
async def test_any_order_is_that_of_all_groups(month: Month, column: str) -> None:
    whole = await asked(month, by="team", order=column)
    there = {row.group["team"]: row for row in (await asked(month, by="team")).rows}
    assert {row.group["team"]: row for row in whole.rows} == there
    for order in (column, f"-{column}"):
        alike: dict[str, Any] = {"by": "team", "order": order, "costs_alone": True}
        rows = (await asked(month, **alike)).rows
        pages = [(await asked(month, **alike, limit=1, offset=n)).rows for n in range(len(rows))]
        assert [row for page in pages for row in page] == rows


def group(team: str | None, pico: int, **given: Any) -> Sums:
    return replace(Sums({"team": team}, requests=1, input_pico_usd=pico), **given)


GROUPS = [
    group("beta", 9, requests=2, input_tokens=100, cached_input_tokens=10, output_tokens=1, output_pico_usd=4),
    group("Alpha", 14, requests=3, output_tokens=7),
    group(None, 1, input_tokens=10, cached_input_tokens=9, output_tokens=2, output_pico_usd=6),
    group("gamma", 0, requests=0),
]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (None, ["Alpha", "beta", None, "gamma"]),
        ("spend", ["Alpha", "beta", None, "gamma"]),
        ("-spend", ["gamma", None, "beta", "Alpha"]),
        ("requests", ["Alpha", "beta", None, "gamma"]),
        ("team", ["Alpha", "beta", "gamma", None]),
        ("-team", ["gamma", "beta", "Alpha", None]),
        ("output-price", ["beta", None, "Alpha", "gamma"]),
        ("-output-price", ["Alpha", None, "beta", "gamma"]),
        ("cached", [None, "beta", "Alpha", "gamma"]),
    ],
)
def test_figures_fall_names_rise_and_what_is_unknown_stands_last(order: str | None, expected: list[str | None]) -> None:
    rows = rows_of(grouped(("team",), GROUPS), Shown(order=order)).rows
    assert [row.group["team"] for row in rows] == expected


def test_a_name_is_what_people_call_it() -> None:
    keys = [
        replace(one, group={"key": key}) for one, key in zip(GROUPS, ("key_1", "key_2", "key_3", "key_4"), strict=True)
    ]
    names = {"key_1": "zoo", "key_2": "app", "key_4": "Bot"}
    rows = rows_of(grouped(("key",), keys), Shown(order="key"), names).rows
    assert [row.group["key"] for row in rows] == ["key_2", "key_4", "key_3", "key_1"]


def grouped(by: tuple[Dimension, ...], groups: list[Sums]) -> Grouped:
    parts = [
        replace(
            one, group={**one.group, "model": "m", "operation": "o", "status": "completed", "is_simulated": "false"}
        )
        for one in groups
    ]
    return Grouped(SumsQuery(0, 1, by), groups, parts)


def test_all_are_shown_where_nobody_says_otherwise() -> None:
    assert rows_of(grouped(("team",), GROUPS), ALL).others is None


@pytest.mark.parametrize(
    "query", [{"order": "model"}, {"order": "cost"}, {"limit": 0}, {"limit": 100_001}, {"offset": -1}]
)
def test_what_is_no_part_or_order_is_refused(query: dict[str, Any]) -> None:
    """By the key's name, which the answer states."""
    with pytest.raises(ValidationError, match=next(iter(query))):
        CostTableQuery.model_validate({"by": "team"} | query)


async def test_groups_that_ceased_stand_below_the_others_so_that_changes_add_up(month: Month) -> None:
    """The last two hours, compared with all the time before."""
    begin, last = (await asked(month)).books_begin, END - timedelta(hours=2)
    present, then = await asked(month, by="key", since=last), await asked(month, by="key", since=begin, until=last)
    compare = {"by": "key", "since": last, "compare_since": begin, "compare_until": last}
    whole = await asked(month, **compare)
    assert whole.earlier is not None
    assert whole.earlier.ceased == whole.groups - len(present.rows) > 0
    assert whole.rows[: len(present.rows)] == present.rows
    assert {(row.requests, Decimal(row.cost_usd)) for row in whole.rows[len(present.rows) :]} == {(0, Decimal(0))}
    assert whole.earlier.total.cost_usd == then.total.cost_usd
    costs = {row.group["key"]: row.cost_usd for row in then.rows}
    assert [None if one is None else one.cost_usd for one in whole.earlier.rows] == [
        costs.get(row.group["key"]) for row in whole.rows
    ]
    assert whole.earlier.others is None
    part = await asked(month, **compare, limit=1)
    assert part.earlier is not None
    assert part.earlier.others is not None
    shown = sum(Decimal(one.cost_usd) for one in part.earlier.rows if one is not None)
    assert shown + Decimal(part.earlier.others.cost_usd) == Decimal(then.total.cost_usd)


async def overview(month: Month, **query: Any) -> Overview:
    return await month.books.overview(ComparedQuery.model_validate({"until": END} | query))


async def test_a_time_that_the_books_hold_a_part_of_is_not_compared_with(month: Month) -> None:
    before = {"compare_since": END - timedelta(days=90), "compare_until": END - timedelta(days=31)}
    assert (await asked(month, by="team", **before)).earlier is None
    assert (await overview(month, **before)).earlier is None
    for half in ({"compare_since": END}, {"compare_until": END}, {"compare_since": END, "compare_until": END}):
        with pytest.raises(InvalidRequest, match="give both"):
            await asked(month, by="team", **half)


async def test_of_groups_of_a_time_the_total_alone_is_compared(month: Month) -> None:
    begin, week = (await asked(month)).books_begin, {"since": END - timedelta(days=7)}
    before = {"compare_since": begin, "compare_until": END - timedelta(days=7)}
    then = await asked(month, since=begin, until=END - timedelta(days=7))
    found = await overview(month, **week, **before)
    for earlier in ((await asked(month, by="day,model", **week, **before)).earlier, found.earlier):
        assert earlier is not None
        assert (earlier.is_by_group, earlier.others, earlier.ceased) == (False, None, 0)
        assert (earlier.total.cost_usd, earlier.total.requests) == (then.total.cost_usd, then.total.requests)
    assert found.books_begin == begin
