"""Parses what clouds export of their bills, for the models among their services. Knows nothing of our books.

| export | how it is recognised |
|---|---|
| Amazon's Cost and Usage Report, 2.0 and legacy | columns `line_item_usage_type`, `lineItem/UsageType` |
| Azure's cost exports (actual, amortized) and cost analysis | columns `meterName`; `ServiceTier` beside `Meter` |
| Google's billing export from BigQuery | `sku` beside `usage_start_time` |
| FOCUS 1.x of any of them | columns `BilledCost`, `ChargePeriodStart` |

A row has a meter (`USE1-Claude4.6Sonnet-input-tokens`), in whose name the model's is (see meter_names.py).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.reports.charged import Charged, Line, Tool, UnknownExport, pico_of
from gateway.reports.meter_names import MAKER

Row = Mapping[str, Any]
"""By names as `plain` writes them."""
CREDIT = "credit"
LEFT_OUT = {CREDIT: "credits", "tax": "taxes"}
OTHER_SERVICES = "other services"
USAGE = ("usage", "regular")
"""How kinds of rows end that are no taxes, fees, refunds or the like; Google's are `regular`."""
EDITION = " (Amazon Bedrock Edition)"
"""Models of other makers are products of Amazon's marketplace, whose usage types name no model."""
PRODUCT = ("product", "productproductname", "productservicename")
REGION = re.compile(r"^(US|EU|AP|CA|SA|ME|AF|UG|IL|MX)[A-Z]{0,2}\d?-")
MODELS = re.compile(
    r"amazonbedrock(?!agentcore)|amazon bedrock(?! agentcore)|openai|foundry models|gemini|claude", re.IGNORECASE
)
PREDICTIONS = re.compile(r"token|input|output|predictions|caching|grounding", re.IGNORECASE)
"""What is billed of models within Vertex AI, which has pipelines and machines too."""
TOOLS: Mapping[str, Tool] = {
    "google search": "web_searches",
    "search query": "web_searches",
    "google maps": "other_tool_calls",
}
FAMILIES: Mapping[str, str] = {"gpt": "gpt", "deepseek": "deepseek", "anthropic": "claude", "grok": "grok"}
"""Azure's meters leave out what their product says: `5.4 inp Gl 1M Tokens` of `Azure OpenAI GPT5`."""
LONGEST = timedelta(days=1, hours=1)
"""A day of 25 hours."""
LONGEST_METER = 200


def cloud_reader(columns: Iterable[str]) -> Callable[[Row], Iterator[Line]] | None:
    """What reads rows with these plain columns; None if they are of no cloud."""
    given = set(columns)
    return next((read for needed, read in READERS.items() if needed <= given), None)


def plain(column: str) -> str:
    """`lineItem/UsageType`, `line_item_usage_type` and `LineItemUsageType` are one name."""
    return re.sub(r"[^a-z0-9]", "", column.lower())


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of JSON as a row of CSV would have it: `{"sku": {"description": …}}` is `skudescription`."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        inner = value if isinstance(value, dict) else {"": value}
        found |= {plain(f"{name}{below}"): item for below, item in inner.items()}
    return found


def _amazon(row: Row) -> Iterator[Line]:
    """Discounts, refunds and private rates are rows of their own, so unblended costs add up to the bill."""
    day, kind = _day(row["lineitemusagestartdate"]), row["lineitemlineitemtype"]
    if "-MP:" in row["lineitemusagetype"] and not row.keys() & set(PRODUCT):
        raise UnknownExport("rows of Amazon's marketplace name their model in the column `product`; export that too")
    edition = _edition(" | ".join(str(row.get(name) or "") for name in PRODUCT))
    service = row["lineitemproductcode"] + (EDITION if edition else "")
    cost = _pico(row["lineitemunblendedcost"], row.get("lineitemcurrencycode") or "USD")
    is_long = _is_long(row["lineitemusagestartdate"], row.get("lineitemusageenddate"))
    yield _covered(day, kind), _charged(day, service, edition or row["lineitemusagetype"], cost, kind, is_long=is_long)


def _azure(row: Row) -> Iterator[Line]:
    day = _day(row.get("date") or row["usagedate"])
    service = " ".join(
        row.get(name) or "" for name in ("metercategory", "metersubcategory", "servicename", "servicetier")
    )
    amounts = ("costinbillingcurrency", "cost", "pretaxcost", "costusd")
    amount = next((row[name] for name in amounts if row.get(name)), "")
    currency = row.get("billingcurrency") or row.get("billingcurrencycode") or row.get("currency") or ""
    usd = row.get("costinusd") or row.get("costusd")
    cost = _pico(amount, currency, usd)
    kind = row.get("chargetype") or "Usage"
    yield _covered(day, kind), _charged(day, service, row.get("metername") or row["meter"], cost, kind)


def _google(row: Row) -> Iterator[Line]:
    """A row's credits are negative: discounts lower what a model cost, a promotion is somebody else's money."""
    day, service, meter = _day(row["usagestarttime"]), row["servicedescription"], row["skudescription"]
    listed: Any = row.get("credits") or []
    listed = json.loads(listed, parse_float=Decimal) if isinstance(listed, str) else listed
    promoted = sum((Decimal(str(one["amount"])) for one in listed if one.get("type") == "PROMOTION"), Decimal(0))
    credited = sum((Decimal(str(one["amount"])) for one in listed), Decimal(0))
    kind = row.get("costtype") or "regular"
    parts = ((Decimal(str(row["cost"])) + credited - promoted, kind), (promoted, CREDIT))
    rate = row.get("currencyconversionrate")
    for amount, of in parts:
        usd = amount / Decimal(str(rate)) if rate else None
        if amount or of == kind:
            yield _covered(day, kind), _charged(day, service, meter, _pico(amount, row["currency"], usd), of)


def _focus(row: Row) -> Iterator[Line]:
    day, kind = _day(row["chargeperiodstart"]), row["chargecategory"]
    names = ("servicename", "xservicecode", "xskumetercategory", "xskumetersubcategory", "chargedescription")
    service = " | ".join(row.get(name) or "" for name in names)
    meters = ("xskumetername", "xusagetype", "xskudescription", "skumeter", "chargedescription")
    meter = _edition(service) or next((row[name] for name in meters if row.get(name)), "")
    cost = _pico(row["billedcost"], row["billingcurrency"], row.get("xbilledcostinusd"))
    is_long = _is_long(row["chargeperiodstart"], row.get("chargeperiodend"))
    yield _covered(day, kind), _charged(day, service, meter, cost, kind, is_long=is_long)


READERS: Mapping[frozenset[str], Callable[[Row], Iterator[Line]]] = {
    frozenset({"billedcost", "billingcurrency", "chargeperiodstart", "chargecategory", "servicename"}): _focus,
    frozenset(
        {
            "lineitemusagestartdate",
            "lineitemlineitemtype",
            "lineitemproductcode",
            "lineitemusagetype",
            "lineitemunblendedcost",
        }
    ): _amazon,
    frozenset({"metercategory", "metersubcategory", "metername", "date"}): _azure,
    frozenset({"usagedate", "servicename", "servicetier", "meter"}): _azure,
    frozenset({"servicedescription", "skudescription", "usagestarttime", "cost", "currency"}): _google,
}


def _covered(day: date, kind: str) -> date | None:
    """Usage alone tells that a bill covers a day: taxes, fees and refunds may be of others."""
    return day if kind.lower().endswith(USAGE) else None


def _charged(day: date, service: str, meter: str, cost: int | None, kind: str, *, is_long: bool = False) -> Charged:
    if not (MODELS.search(service) or ("vertex" in service.lower() and PREDICTIONS.search(meter))):
        return Charged(day, OTHER_SERVICES, cost, is_left_out=True)
    if beside := LEFT_OUT.get(kind.lower()):
        return Charged(day, beside, cost, is_left_out=True)
    if cost is None:
        raise UnknownExport("amounts are not in USD, and no column has them in USD; export them in USD")
    if is_long and kind == "Usage":
        raise UnknownExport("its rows are of whole months; export it again by day or by hour")
    for words, tool in TOOLS.items():
        if words in meter.lower():
            return Charged(day, words, cost, tool=tool)
    bare = MAKER.sub("", REGION.sub("", meter[:LONGEST_METER]))
    return Charged(day, _whole(service, bare), cost, is_meter=True)


def _edition(text: str) -> str:
    """`Claude Opus 5.5` of a product, which may be in the JSON of a map."""
    before, found, _ = text.partition(EDITION)
    return re.split(r'["|{}:]', before)[-1].strip() if found else ""


def _whole(service: str, meter: str) -> str:
    families = [family for word, family in FAMILIES.items() if word in service.lower()]
    return " ".join([*(family for family in families if family not in meter.lower()), meter])


def _pico(amount: Any, currency: str, usd: Any = None) -> int | None:
    """None if it is not known in USD, which matters for the rows of models alone."""
    if currency.upper() == "USD":
        return pico_of(amount)
    return None if usd in (None, "") else pico_of(usd)


def _is_long(start: Any, end: Any) -> bool:
    return bool(end) and _moment(end) - _moment(start) > LONGEST


def _day(start: Any) -> date:
    return _moment(start).date()


def _moment(said: Any) -> datetime:
    """Azure writes a day as 11/03/2026, BigQuery a moment as 2026-11-03 07:00:00 UTC."""
    text = str(said).strip().removesuffix(" UTC").replace("Z", "+00:00")
    if "/" in text:
        return datetime.strptime(text, "%m/%d/%Y").replace(tzinfo=UTC)
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
