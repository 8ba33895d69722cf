"""The FOCUS export against the specification's own rules (FOCUS 1.3, cost and usage) and the ledger's sums."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from gateway.money import usd
from gateway.reports.focus import Period, focus_table
from gateway.reports.focus_columns import COLUMNS, GROUP_BY
from gateway.reports.tables import Cell, ReportTable
from tests.unit.gateway.reports.focus_month import (
    NAMES,
    PERIOD,
    a_month,
    make_answer_from_cache,
    make_capacity,
    make_engine,
    make_sums,
    no_cost,
)

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
"""Null for a charge that is on no invoice, of which the ledger knows none."""
NEVER_NULL = set(MANDATORY) - {
    "BillingAccountName",
    "ChargeClass",
    "ChargeDescription",
    "PricingQuantity",
    "PricingUnit",
}
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


def check_row(row: Mapping[str, Cell]) -> None:
    """The rules of FOCUS 1.3 for one row, as far as they apply to our exports."""
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
    """As in every other report: the usage was booked without a price, and its cost is a correction."""
    later = make_sums(
        unpriced_requests=3, priced_later_requests=2, adjusted_requests=2, adjustment_pico_usd=7, **no_cost()
    )
    table = focus_table([later], [], PERIOD, NAMES)
    assert {row["x_UnpricedRequests"] for row in table.rows} == {1}
    assert all(row["PricingQuantity"] is None for row in table.rows)
    all_told = make_sums(
        unpriced_requests=2, priced_later_requests=2, adjusted_requests=2, adjustment_pico_usd=7, **no_cost()
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
    groups.append(make_answer_from_cache())
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


def test_the_groups_leave_no_request_in_two_rows() -> None:
    assert "tag" not in GROUP_BY, "a request with two tags would be counted twice"


def test_what_is_billed_beside_tokens_stands_on_one_row_priced_or_not() -> None:
    calls = {"web_searches": 4, "file_searches": 2, "other_tool_calls": 1}
    for group in (make_sums(**calls), make_sums(**calls, unpriced_requests=3, **no_cost())):
        table = focus_table([group], [], PERIOD, NAMES)
        told = [row for row in table.rows if row["x_WebSearches"] is not None]
        assert [(row["SkuMeter"], row["x_WebSearches"], row["x_FileSearches"]) for row in told] == [("Requests", 4, 2)]
        assert told[0]["x_OtherToolCalls"] == 1
        for row in table.rows:
            check_row(row)
