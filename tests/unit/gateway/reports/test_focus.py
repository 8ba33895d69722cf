"""The FOCUS export against the specification's own rules (FOCUS 1.3, cost and usage) and the ledger's sums."""

import csv
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.money import usd
from gateway.reports.focus import Capacity, Period, focus_table
from gateway.reports.focus_columns import COLUMNS, GROUP_BY
from gateway.reports.tables import Cell, Format, ReportTable, apportion, cell_text, encode, file_of
from gateway.sums import Dimension, Sums

PERIOD = Period(datetime(2026, 1, 30, 12, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC))
NAMES = {"key-1": "search nightly"}
MANDATORY = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "HostProviderName",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceProviderName",
]
RECOMMENDED = ["InvoiceId"]
"""Null in a charge that is on no invoice; a ledger knows of none."""
NEVER_NULL = set(MANDATORY) - {
    "BillingAccountName",
    "ChargeClass",
    "ChargeDescription",
    "PricingQuantity",
    "PricingUnit",
}
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction", None},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other", None},
    "CapacityReservationStatus": {"Used", "Unused", None},
    "ServiceCategory": {"AI and Machine Learning"},
    "ServiceSubcategory": {"Generative AI"},
    "BillingCurrency": {"USD"},
    "PricingUnit": {"Tokens", "Requests", "Seconds", "Hours", None},
    "ConsumedUnit": {"Tokens", "Requests", "Seconds", "Hours", None},
}


def make_sums(**given: Any) -> Sums:
    group: dict[Dimension, str | None] = {
        "day": "2026-01-31",
        "team": "search",
        "project": "ranking",
        "key": "key-1",
        "tags": '["batch","night"]',
        "operation": "chat.completions",
        "model": "mid-hosted",
        "backend": "openai",
        "provider": "openai",
        "upstream_model": "gpt-5.4-mini",
        "is_simulated": "false",
    }
    fields: dict[str, Any] = {
        "requests": 3,
        "input_tokens": 1000,
        "cached_input_tokens": 200,
        "cache_write_5m_tokens": 100,
        "output_tokens": 77,
        "input_pico_usd": 700 * 150_000,
        "cached_input_pico_usd": 200 * 15_000,
        "cache_write_pico_usd": 100 * 187_500,
        "output_pico_usd": 77 * 600_000,
        "other_pico_usd": 3_000_000,
    }
    group |= given.pop("group", {})
    fields |= given
    costs = [value for name, value in fields.items() if name.endswith("_pico_usd") and name[:4] not in ("list", "adju")]
    fields.setdefault("list_pico_usd", sum(costs))
    return Sums(group, **fields)


def make_engine(**given: Any) -> Sums:
    """Two hours of a GPU at $2, spent by one team."""
    group = {"model": "own", "backend": "local", "provider": "local", "upstream_model": "llama"}
    nothing = dict.fromkeys(
        ("input_pico_usd", "cached_input_pico_usd", "cache_write_pico_usd", "output_pico_usd", "other_pico_usd"), 0
    )
    return make_sums(
        group={**group, **given.pop("group", {})},
        **{**nothing, "gpu_us": 7_200_000_000, "compute_pico_usd": 4 * 10**12, **given},
    )


def make_capacity(**given: Any) -> Capacity:
    fields: dict[str, Any] = {
        "day": "2026-01-31",
        "backend": "local",
        "provider": "local",
        "paid_us": 24 * 3_600_000_000,
        "used_us": 7_200_000_000,
        "hours": Decimal(24),
        "rent_pico_usd": 48 * 10**12,
        "idle_pico_usd": 44 * 10**12,
    }
    return Capacity(**{**fields, **given})


def a_month() -> ReportTable:
    """Something of everything."""
    groups = [
        make_sums(),
        make_sums(group={"team": None, "project": None, "tags": "[]", "day": "2026-01-30"}, list_pico_usd=10**9 + 7),
        make_sums(group={"provider": "anthropic"}, unpriced_requests=1, estimated_requests=2),
        make_sums(group={"provider": "nobody"}, unpriced_requests=3, **_no_cost()),
        make_sums(group={"provider": "repriced"}, adjusted_requests=2, adjustment_pico_usd=-123_456_789),
        make_sums(group={"provider": "simulated", "is_simulated": "true"}),
        make_sums(group={"day": "2026-02-01"}),
        make_engine(),
        make_engine(group={"backend": "elsewhere", "provider": "vllm"}),
    ]
    return focus_table(groups, [make_capacity(), make_capacity(day="2026-02-01", used_us=0)], PERIOD, NAMES)


def _no_cost() -> dict[str, int]:
    names = ("input", "cached_input", "cache_write", "output", "other", "list")
    return {f"{name}_pico_usd": 0 for name in names}


def check_row(row: Mapping[str, Cell]) -> None:
    """What FOCUS 1.3 says of one row, where it applies to what we can export."""
    for name in NEVER_NULL:
        assert row[name] is not None, name
    for name, allowed in ALLOWED.items():
        assert row[name] in allowed, (name, row[name])
    for column in COLUMNS:
        assert row[column.name] != "", column.name
    for before, after in (("ChargePeriodStart", "ChargePeriodEnd"), ("BillingPeriodStart", "BillingPeriodEnd")):
        start, end = row[before], row[after]
        assert isinstance(start, datetime)
        assert isinstance(end, datetime)
        assert start < end
        assert start.tzinfo is UTC
        assert end.tzinfo is UTC
    assert str(row["BillingPeriodStart"]) <= str(row["ChargePeriodStart"])
    assert str(row["ChargePeriodEnd"]) <= str(row["BillingPeriodEnd"])
    check_prices(row)
    check_nulls(row)


def check_prices(row: Mapping[str, Cell]) -> None:
    """Price times quantity is the cost; prices are not negative."""
    for price_name, cost_name in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        price, quantity, cost = row[price_name], row["PricingQuantity"], row[cost_name]
        if price is None:
            assert quantity is None
            continue
        assert isinstance(price, Decimal)
        assert isinstance(quantity, Decimal)
        assert isinstance(cost, Decimal)
        assert price >= 0
        assert (price * quantity).quantize(Decimal("1e-12")) == cost


def check_nulls(row: Mapping[str, Cell]) -> None:
    category = row["ChargeCategory"]
    is_priced = not row["x_UnpricedRequests"]
    if category in ("Usage", "Purchase"):
        assert row["SkuId"] is not None
        assert row["SkuPriceId"] is not None
        assert (row["PricingQuantity"] is not None) == is_priced
        assert (row["PricingCategory"] is not None) == is_priced
    assert (row["PricingUnit"] is None) == (row["PricingQuantity"] is None)
    assert (row["ConsumedQuantity"] is None) == (category != "Usage")
    assert (row["ConsumedUnit"] is None) == (row["ConsumedQuantity"] is None)
    assert (row["SubAccountType"] is None) == (row["SubAccountId"] is None)
    if row["SkuId"] is None:
        assert row["SkuMeter"] is None
    if row["CapacityReservationId"] is None:
        assert row["CapacityReservationStatus"] is None
    elif category == "Usage":
        assert row["CapacityReservationStatus"] is not None
    if category == "Purchase":
        assert row["EffectiveCost"] == 0
        assert row["ChargeFrequency"] != "Usage-Based"
    if row["Tags"] is not None:
        values = json.loads(str(row["Tags"])).values()
        assert all(isinstance(value, str | int | float | bool) or value is None for value in values)


def test_what_got_its_price_later_is_no_longer_unpriced() -> None:
    """As in every other report; its usage was booked without a price, and what it cost is a correction."""
    later = make_sums(
        unpriced_requests=3, priced_later_requests=2, adjusted_requests=2, adjustment_pico_usd=7, **_no_cost()
    )
    table = focus_table([later], [], PERIOD, NAMES)
    assert {row["x_UnpricedRequests"] for row in table.rows} == {1}
    assert all(row["PricingQuantity"] is None for row in table.rows)
    all_told = make_sums(
        unpriced_requests=2, priced_later_requests=2, adjusted_requests=2, adjustment_pico_usd=7, **_no_cost()
    )
    table = focus_table([all_told], [], PERIOD, NAMES)
    assert {row["x_UnpricedRequests"] for row in table.rows} == {0}
    assert any("Adjustments" in note for note in table.notes)


def test_the_columns_are_those_of_the_specification() -> None:
    names = [column.name for column in COLUMNS]
    assert {*MANDATORY, *RECOMMENDED} <= set(names)
    own = [name for name in names if name.startswith("x_")]
    assert names[-len(own) :] == own, "own columns come last"
    standard = names[: -len(own)]
    assert standard == sorted(standard)
    assert len(set(names)) == len(names)


def test_every_row_keeps_the_specifications_rules() -> None:
    table = a_month()
    assert {row["ChargeCategory"] for row in table.rows} == {"Usage", "Purchase", "Adjustment"}
    for row in table.rows:
        assert set(row) == {column.name for column in COLUMNS}
        check_row(row)


def test_a_key_has_its_id_and_the_name_that_people_know() -> None:
    rows = focus_table([make_sums(), make_sums(group={"key": "key-2"})], [make_capacity()], PERIOD, NAMES).rows
    assert {(row["x_KeyId"], row["x_KeyName"]) for row in rows} == {
        ("key-1", "search nightly"), ("key-2", None), (None, None),
    }  # fmt: skip


def test_one_sku_price_has_one_sku_and_one_service_one_category() -> None:
    rows = a_month().rows
    assert len({(row["SkuPriceId"], row["SkuId"]) for row in rows}) == len({row["SkuPriceId"] for row in rows})
    services = {(row["ServiceName"], row["ServiceCategory"]) for row in rows}
    assert len(services) == len({name for name, _ in services})


def total(rows: ReportTable, name: str) -> Decimal:
    return sum((Decimal(str(row[name])) for row in rows.rows), Decimal(0))


def test_costs_add_up_to_the_ledger_and_the_rent_to_the_pico_dollar() -> None:
    groups = [make_sums(list_pico_usd=10**9 + 7), make_sums(adjustment_pico_usd=55, adjusted_requests=1), make_engine()]
    capacity = [make_capacity()]
    table = focus_table(groups, capacity, PERIOD, NAMES)
    booked = sum(group.corrected_cost_pico_usd for group in groups)
    assert total(table, "EffectiveCost") == usd(booked + capacity[0].idle_pico_usd)
    own = sum(group.compute_pico_usd for group in groups)
    assert total(table, "BilledCost") == usd(booked - own + capacity[0].rent_pico_usd)
    lists = [row for row in table.rows if row["ChargeCategory"] == "Usage" and row["SkuMeter"] != "Idle GPU Seconds"]
    assert sum(Decimal(str(row["ListCost"])) for row in lists) == usd(sum(group.list_pico_usd for group in groups))


def test_idle_capacity_is_a_row_of_its_own() -> None:
    rows = focus_table([make_engine()], [make_capacity()], PERIOD, NAMES).rows
    [idle] = [row for row in rows if row["CapacityReservationStatus"] == "Unused"]
    assert idle["EffectiveCost"] == 44
    assert idle["BilledCost"] == 0
    assert idle["PricingQuantity"] == 24 * 3600 - 7200
    [used] = [row for row in rows if row["CapacityReservationStatus"] == "Used"]
    assert (used["EffectiveCost"], used["BilledCost"], used["ConsumedQuantity"]) == (4, 0, 7200)
    [rent] = [row for row in rows if row["ChargeCategory"] == "Purchase"]
    assert (rent["EffectiveCost"], rent["BilledCost"]) == (0, 48)


def test_a_gpu_whose_rent_is_not_booked_is_charged_by_its_time() -> None:
    [row] = focus_table([make_engine()], [], PERIOD, NAMES).rows
    assert row["BilledCost"] == row["EffectiveCost"] == 4
    assert row["CapacityReservationId"] is None


def test_nobody_bills_what_was_simulated() -> None:
    simulated = make_sums(group={"is_simulated": "true"}, adjusted_requests=1, adjustment_pico_usd=7)
    rows = focus_table([simulated], [], PERIOD, NAMES).rows
    assert {row["BilledCost"] for row in rows} == {Decimal(0)}
    assert sum(Decimal(str(row["EffectiveCost"])) for row in rows) == usd(simulated.corrected_cost_pico_usd)


def test_charges_are_cut_to_the_period_and_months_end_where_they_end() -> None:
    first = focus_table([make_sums(group={"day": "2026-01-30"})], [], PERIOD, NAMES).rows[0]
    assert first["ChargePeriodStart"] == datetime(2026, 1, 30, 12, tzinfo=UTC)
    assert first["BillingPeriodEnd"] == datetime(2026, 2, 1, tzinfo=UTC)
    december = Period(datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    last = focus_table([make_sums(group={"day": "2026-12-31"})], [], december, NAMES).rows[0]
    assert last["BillingPeriodEnd"] == last["ChargePeriodEnd"] == datetime(2027, 1, 1, tzinfo=UTC)


def test_csv_and_parquet_hold_the_same() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    import pyarrow

    table = a_month()
    read = parquet.read_table(pyarrow.BufferReader(encode(table, "parquet")))
    assert read.schema.names == [column.name for column in COLUMNS]
    assert str(read.schema.field("BilledCost").type) == "decimal128(38, 12)"
    assert str(read.schema.field("ChargePeriodStart").type) == "timestamp[us, tz=UTC]"
    assert read.schema.metadata[b"note.1"] == b"FOCUS 1.3"
    lines = list(csv.DictReader(io.StringIO(encode(table, "csv").decode())))
    assert len(lines) == read.num_rows == len(table.rows)
    for line, row in zip(lines, read.to_pylist(), strict=True):
        for name in COSTS:
            assert Decimal(line[name]) == row[name]
        assert datetime.fromisoformat(line["ChargePeriodStart"]) == row["ChargePeriodStart"]
        assert (line["Tags"] or None) == row["Tags"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_of_pages_holds_what_one_of_a_page_does(form: Format) -> None:
    table = a_month()
    half = len(table.rows) // 2
    file = file_of(COLUMNS, form)
    pages = [
        ReportTable(COLUMNS, table.rows[:half], table.notes[:1]),
        ReportTable(COLUMNS, table.rows[half:], table.notes),
    ]
    content = b"".join([*map(file.page, pages), file.end()])
    assert tuple(file.notes) == table.notes
    if form == "csv":
        assert content == encode(table, "csv")
        return
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    read, at_once = (parquet.read_table(io.BytesIO(one)) for one in (content, encode(table, "parquet")))
    assert read.equals(at_once, check_metadata=True)
    assert read.schema.metadata[b"note.2"].decode() == table.notes[1]


def test_a_file_without_a_page_has_its_columns() -> None:
    assert file_of(COLUMNS, "csv").end() == encode(ReportTable(COLUMNS, ()), "csv")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    read = parquet.read_table(io.BytesIO(file_of(COLUMNS, "parquet").end()))
    assert (read.num_rows, read.schema.names) == (0, [column.name for column in COLUMNS])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("0.072"), "0.072000"),
        (Decimal("-1234.567"), "-1234.567000"),
        (Decimal("2.5"), "2.500000"),
        (Decimal(3), "3.000000"),
        (Decimal("0.000000000005"), "0.000000000005"),
        (0.5, "0.500000"),
        (1.5e-07, "1.5e-07"),
        (1000, "1000"),
    ],
)
def test_a_spreadsheet_that_writes_decimals_with_a_comma_takes_none_for_another_number(value: Cell, text: str) -> None:
    """It read 0.072 as 72, and three such cells of a column of fractions were its whole sum."""
    assert cell_text(value) == text


def test_no_cell_becomes_a_formula_of_a_spreadsheet() -> None:
    rows = focus_table([make_sums(group={"team": "=HYPERLINK(1)"})], [], PERIOD, NAMES)
    assert "'=HYPERLINK(1)" in encode(rows, "csv").decode()
    negative = focus_table([make_sums(adjustment_pico_usd=-5, adjusted_requests=1)], [], PERIOD, NAMES)
    assert ",-0.000000000005," in encode(negative, "csv").decode(), "a negative number stays one"


@pytest.mark.parametrize(
    ("whole", "weights", "parts"),
    [
        (10, [1, 1, 1], [4, 3, 3]),
        (0, [5, 5], [0, 0]),
        (7, [0, 0], [7, 0]),
        (10**18 + 1, [1, 10**15, 3], None),
    ],
)
def test_apportioning_adds_up(whole: int, weights: list[int], parts: list[int] | None) -> None:
    found = apportion(whole, weights)
    assert sum(found) == whole
    assert parts is None or found == parts


def test_the_groups_leave_no_request_in_two_rows() -> None:
    assert "tag" not in GROUP_BY, "a request with two tags would be counted twice"


def test_what_is_billed_beside_tokens_stands_on_one_row_priced_or_not() -> None:
    calls = {"web_searches": 4, "file_searches": 2, "other_tool_calls": 1}
    for group in (make_sums(**calls), make_sums(**calls, unpriced_requests=3, **_no_cost())):
        table = focus_table([group], [], PERIOD, NAMES)
        told = [row for row in table.rows if row["x_WebSearches"] is not None]
        assert [(row["SkuMeter"], row["x_WebSearches"], row["x_FileSearches"]) for row in told] == [("Requests", 4, 2)]
        assert told[0]["x_OtherToolCalls"] == 1
        for row in table.rows:
            check_row(row)
