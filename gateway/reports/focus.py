"""The books as a FOCUS 1.3 cost and usage dataset (FinOps Open Cost and Usage Specification). Pure.

One row per day, group of the ledger and meter (what is counted: input tokens, output tokens, GPU seconds, ...).

- Hosted requests: list cost at list prices; contracted, billed and effective cost as charged.
- GPUs of our own: the rent of a day is a Purchase (billed, effective cost 0); the seconds that requests used and the
  seconds that nobody used are Usage of that capacity (billed 0, effective their share of the rent).
- Answers from the response cache: list cost as their originals were charged; contracted, billed and effective cost 0.
- Groups with requests whose price was unknown when booked have no pricing columns; `x_UnpricedRequests` counts those
  whose price is still unknown, as in every report.
- Corrections of the ledger are rows of category Adjustment; those booked after their month are separate rows of class
  Correction.
- Simulated requests have their list price as effective cost and are billed by nobody.

So the sum of EffectiveCost is the ledger's total, corrections included, plus the idle line; the sum of BilledCost is
the charges that will be invoiced, the corrections and the rent.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Literal

from gateway.money import usd
from gateway.reports.focus_columns import COLUMNS, EMPTY, VERSION
from gateway.reports.tables import DIGITS, PLACES, Cell, ReportTable, apportion
from gateway.sums import Sums

Unit = Literal["Tokens", "Requests", "Seconds", "Hours"]
US_PER_SECOND = 10**6
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Capacity:
    """One day of our own GPUs: their cost, and how much of it was unused."""

    day: str
    backend: str
    provider: str
    paid_us: int
    used_us: int
    hours: Decimal
    rent_pico_usd: int
    used_pico_usd: int
    idle_pico_usd: int

    def since(self, before: "Capacity") -> "Capacity":
        """What was idle before and is not used by now; a day that was read alone knows no other's idle rent."""
        more = self.rent_pico_usd - before.rent_pico_usd - (self.used_pico_usd - before.used_pico_usd)
        return replace(self, idle_pico_usd=max(0, before.idle_pico_usd + more))


@dataclass(frozen=True, slots=True)
class Period:
    """The requested period; charges of its first and last day are clipped to it."""

    since: datetime
    until: datetime

    def of_day(self, label: str) -> tuple[datetime, datetime]:
        start = datetime.fromisoformat(label).replace(tzinfo=UTC)
        return max(start, self.since), min(start + ONE_DAY, self.until)


@dataclass(frozen=True, slots=True)
class Meter:
    """One line of a group."""

    name: str
    quantity: Decimal
    unit: Unit
    cost_pico_usd: int


def focus_table(
    groups: Iterable[Sums],
    capacity: Sequence[Capacity],
    period: Period,
    key_names: Mapping[str, str],
    rented: Collection[str] | None = None,
    at_month_end: Iterable[Sums] | None = None,
) -> ReportTable:
    """`groups` are by GROUP_BY. `rented`: backends whose rent is booked, here or on another page (None: those of
    `capacity`); GPU time of other backends is a charge. `at_month_end`: the same groups without corrections made after
    their month (None: there were none)."""
    rented = {one.backend for one in capacity} if rented is None else rented
    ended = None if at_month_end is None else {tuple(one.group.values()): one for one in at_month_end}
    rows: list[dict[str, Cell]] = []
    was_any_unpriced = False
    for group in groups:
        was_any_unpriced |= bool(group.unpriced_requests)
        base = {**_base(group, period), "x_KeyName": key_names.get(group.group["key"] or "")}
        rows += _usage_rows(base, group, rented)
        rows += _corrections(base, group, group if ended is None else ended.get(tuple(group.group.values())))
    rows += [row for one in capacity for row in _capacity_rows(one, period)]
    rows.sort(key=lambda row: (str(row["ChargePeriodStart"]), str(row["SkuId"]), str(row["SubAccountId"])))
    return ReportTable(COLUMNS, rows, (f"FOCUS {VERSION}", *_notes(rows, was_any_unpriced=was_any_unpriced)))


def _notes(rows: Sequence[Mapping[str, Cell]], *, was_any_unpriced: bool) -> Iterator[str]:
    if was_any_unpriced:
        yield "Requests whose price was not known when booked are in no usage row, but in Adjustments once repriced."
    if any(row["x_IsSimulated"] for row in rows):
        yield "Rows with x_IsSimulated are simulated at list prices: no bill will come for them."


def _usage_rows(base: Mapping[str, Cell], group: Sums, rented: Collection[str]) -> Iterator[dict[str, Cell]]:
    meters = list(_meters(group))
    if not meters and group.list_pico_usd:  # from the response cache
        meters = [Meter("Requests", Decimal(group.requests), "Requests", 0)]
    lists = apportion(group.list_pico_usd, [one.cost_pico_usd for one in meters]) if meters else []
    for meter, list_pico in zip(meters, lists, strict=True):
        yield _usage(base, group, meter, list_pico, is_rented=group.group["backend"] in rented)


def _corrections(base: Mapping[str, Cell], group: Sums, at_month_end: Sums | None) -> Iterator[dict[str, Cell]]:
    """Separates corrections booked within the month from later ones: FOCUS's ChargeClass distinguishes them."""
    pico, count = (at_month_end.adjustment_pico_usd, at_month_end.adjusted_requests) if at_month_end else (0, 0)
    later = ("Correction", group.adjustment_pico_usd - pico, group.adjusted_requests - count)
    for charge_class, amount_pico_usd, corrections in ((None, pico, count), later):
        if amount_pico_usd:
            amount = usd(amount_pico_usd)
            yield {
                **base,
                **dict.fromkeys(("ContractedCost", "EffectiveCost", "ListCost"), amount),
                "BilledCost": usd(0) if base["x_IsSimulated"] else amount,
                "ChargeCategory": "Adjustment",
                "ChargeClass": charge_class,
                "ChargeDescription": f"{group.group['model']}: corrections booked: {corrections}",
                "ChargeFrequency": "One-Time",
            }


def _base(group: Sums, period: Period) -> dict[str, Cell]:
    named = group.group
    provider = named["provider"] or "unknown"
    tags = dict.fromkeys(json.loads(named["tags"] or "[]"), True)
    return {
        **EMPTY,
        **_when(named["day"] or "", period),
        **_who(provider, named["team"]),
        "ServiceName": f"{provider} API",
        "Tags": json.dumps(tags, ensure_ascii=False, sort_keys=True) if tags else None,
        "x_Backend": named["backend"],
        "x_EstimatedRequests": group.estimated_requests,
        "x_IsSimulated": named["is_simulated"] == "true",
        "x_KeyId": named["key"],
        "x_Model": named["model"],
        "x_Operation": named["operation"],
        "x_Project": named["project"],
        "x_UnpricedRequests": group.still_unpriced_requests,
    }


def _when(day: str, period: Period) -> dict[str, Cell]:
    start, end = period.of_day(day)
    month, month_end = month_of(start)
    return {
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "BillingPeriodStart": month,
        "BillingPeriodEnd": month_end,
    }


def month_of(moment: datetime) -> tuple[datetime, datetime]:
    """Start and end of its UTC month, the billing period of providers."""
    month = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return month, (month + timedelta(days=31)).replace(day=1)


def _who(provider: str, team: str | None) -> dict[str, Cell]:
    """ProviderName and PublisherName are deprecated in 1.3 but still mandatory."""
    names = ("ServiceProviderName", "HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName")
    return {
        **dict.fromkeys(names, provider),
        "BillingAccountId": provider,
        "BillingCurrency": "USD",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "SubAccountId": team,
        "SubAccountName": team,
        "SubAccountType": "Team" if team is not None else None,
    }


def _meters(group: Sums) -> Iterator[Meter]:
    written = group.cache_write_5m_tokens + group.cache_write_1h_tokens
    if group.gpu_us or group.compute_pico_usd:
        yield Meter("GPU Seconds", Decimal(group.gpu_us) / US_PER_SECOND, "Seconds", group.compute_pico_usd)
        token_costs = group.cost_pico_usd - group.compute_pico_usd
        if not token_costs:
            return
    fresh = group.input_tokens - group.cached_input_tokens - written
    classes: tuple[tuple[str, int, Unit, int], ...] = (
        ("Input Tokens", fresh, "Tokens", group.input_pico_usd),
        ("Cached Input Tokens", group.cached_input_tokens, "Tokens", group.cached_input_pico_usd),
        ("Cache Write Tokens", written, "Tokens", group.cache_write_pico_usd),
        ("Output Tokens", group.output_tokens, "Tokens", group.output_pico_usd),
        ("Requests", group.requests if _has_fees(group) else 0, "Requests", group.other_pico_usd),
    )
    for name, quantity, unit, cost in classes:
        if quantity or cost:
            yield Meter(name, Decimal(quantity), unit, cost)


def _has_fees(group: Sums) -> bool:
    """Whether anything besides tokens is billed, at any price."""
    return bool(group.other_pico_usd or group.web_searches or group.file_searches or group.other_tool_calls)


def _usage(base: Mapping[str, Cell], group: Sums, meter: Meter, list_pico: int, *, is_rented: bool) -> dict[str, Cell]:
    provider, upstream = base["ServiceProviderName"], group.group["upstream_model"]
    sku = f"{provider}/{upstream}/{meter.name}"
    is_gpu = meter.unit == "Seconds"
    row: dict[str, Cell] = {
        **base,
        **_pricing(meter.quantity, meter.unit, list_pico, meter.cost_pico_usd, is_priced=not group.unpriced_requests),
        "BilledCost": usd(0 if (is_gpu and is_rented) or base["x_IsSimulated"] else meter.cost_pico_usd),
        "EffectiveCost": usd(meter.cost_pico_usd),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{upstream}: {meter.name.lower() if not is_gpu else 'GPU seconds'}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": meter.quantity,
        "ConsumedUnit": meter.unit,
        "SkuId": sku,
        "SkuPriceId": sku,
        "SkuMeter": meter.name,
    }
    if meter.unit == "Requests":
        row |= {
            "x_WebSearches": group.web_searches,
            "x_FileSearches": group.file_searches,
            "x_OtherToolCalls": group.other_tool_calls,
        }
    if is_gpu:
        row |= _resource(group.group["backend"] or "", "Used" if is_rented else None)
        row |= {"ServiceName": "Own GPUs", "x_InputTokens": group.input_tokens, "x_OutputTokens": group.output_tokens}
    return row


def _pricing(quantity: Decimal, unit: Unit, list_pico: int, cost_pico: int, *, is_priced: bool) -> dict[str, Cell]:
    """Unit prices are means if prices changed within the day; all null if any price is unknown."""
    costs: dict[str, Cell] = {"ListCost": usd(list_pico), "ContractedCost": usd(cost_pico)}
    if not is_priced or not quantity:
        return costs
    return costs | {
        "ListUnitPrice": _unit_price(list_pico, quantity),
        "ContractedUnitPrice": _unit_price(cost_pico, quantity),
        "PricingCategory": "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
    }


def _unit_price(pico: int, quantity: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 2 * DIGITS
        return (usd(pico) / quantity).quantize(Decimal(1).scaleb(-PLACES["price"]))


def _resource(backend: str, status: str | None) -> dict[str, Cell]:
    """`status` None: capacity not booked here."""
    return {
        "ResourceId": backend,
        "ResourceName": backend,
        "ResourceType": "GPU",
        "CapacityReservationId": backend if status is not None else None,
        "CapacityReservationStatus": status,
    }


def _capacity_rows(one: Capacity, period: Period) -> Iterator[dict[str, Cell]]:
    base: dict[str, Cell] = {
        **EMPTY,
        **_when(one.day, period),
        **_who(one.provider, None),
        "ServiceName": "Own GPUs",
        "x_Backend": one.backend,
        "x_EstimatedRequests": 0,
        "x_IsSimulated": False,
        "x_UnpricedRequests": 0,
    }
    rent = f"{one.provider}/{one.backend}/GPU Hours"
    yield {
        **base,
        **_resource(one.backend, None),
        **_pricing(one.hours, "Hours", one.rent_pico_usd, one.rent_pico_usd, is_priced=True),
        "BilledCost": usd(one.rent_pico_usd),
        "EffectiveCost": usd(0),
        "CapacityReservationId": one.backend,
        "ChargeCategory": "Purchase",
        "ChargeDescription": f"{one.backend}: rent of the day",
        "ChargeFrequency": "Recurring",
        "SkuId": rent,
        "SkuPriceId": rent,
        "SkuMeter": "GPU Hours",
    }
    if not one.idle_pico_usd:
        return
    idle = f"{one.provider}/{one.backend}/Idle GPU Seconds"
    seconds = Decimal(max(0, one.paid_us - one.used_us)) / US_PER_SECOND
    yield {
        **base,
        **_resource(one.backend, "Unused"),
        **_pricing(seconds, "Seconds", one.idle_pico_usd, one.idle_pico_usd, is_priced=True),
        "BilledCost": usd(0),
        "EffectiveCost": usd(one.idle_pico_usd),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{one.backend}: GPU seconds that nobody used",
        "ChargeFrequency": "Recurring",
        "ConsumedQuantity": Decimal(0),
        "ConsumedUnit": "Seconds",
        "SkuId": idle,
        "SkuPriceId": idle,
        "SkuMeter": "Idle GPU Seconds",
    }
