"""Parses what a provider says it charges from its usage and cost exports. Knows nothing of our books.

| export | how it is recognised |
|---|---|
| OpenAI costs API and dashboard CSV | `organization.costs.result`; columns `amount_value`, `line_item` |
| OpenAI usage API and dashboard CSV | `num_model_requests` |
| Anthropic cost report and console CSV | `amount` in cents beside `cost_type`; column `cost_usd` |
| Anthropic usage report and console CSV | `uncached_input_tokens`; column `usage_input_tokens_no_cache` |
| OpenRouter's activity API and CSV | `model_permaslug` beside `usage`; columns `Slug`, `BYOK Usage` |
| a cloud's bill | see cloud_bills.py |

A cost export has dollars but no tokens, a usage export tokens but no dollars: what is missing is None, never zero.
Calls of a provider's own tools have lines that name the tool and no model.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from gateway.money import PICO_PER_USD
from gateway.reports.charged import Charged, Line, Tool, UnknownExport, added_up, left_out, model_key, pico_of
from gateway.reports.cloud_bills import cloud_reader, flat, plain

PICO_PER_CENT = PICO_PER_USD // 100
GROUPED = (
    "ask the API for it again with group_by[]=line_item (OpenAI's costs), model (the usage of both) or "
    "description (Anthropic's costs)"
)
"""Both APIs sum over all models unless asked to group by model."""
Row = Mapping[str, Any]
TOOLS: Mapping[str, Tool] = {
    "web-search": "web_searches",
    "file-search-tool": "file_searches",
    "code-interpreter": "other_tool_calls",
}
"""Prefixes of tool names, in the spelling of model_key; `file search storage` is not a call."""


LINE_ITEM = re.compile(r"(?:\w+ \| )?(.*?)(?: (?:audio|image|text))?")
"""`priority | gpt-5.4`, `gpt-image-2.5-flare image`."""


MOST_COLUMNS = 1000
"""Reading and sorting a million names would hold up all requests for seconds."""


@dataclass(frozen=True, slots=True)
class Export:
    """Lines ordered by day and model, and the days covered; days at either end may have no line. A cloud's refunds may
    be of other days. `left_out`: what it charges for other things, by what they are (None: not known in USD)."""

    days: tuple[date, ...]
    lines: tuple[Charged, ...]
    left_out: Mapping[str, int | None]


def parse_export(*texts: str) -> Export:
    """One export, of one or more files. Raises UnknownExport."""
    if len(set(texts)) < len(texts):
        raise UnknownExport("two of its files are the same, whose charges would count twice")
    try:
        read = [row for text in texts for row in _read(text, is_last=text is texts[-1])]
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, csv.Error, RecursionError) as error:
        if isinstance(error, UnknownExport):
            raise
        raise UnknownExport(f"a line cannot be read: {type(error).__name__} {error}") from error
    charged = [line for _, line in read if line is not None]
    lines = [line for line in charged if not line.is_left_out]
    # Compared with such an export, all our models would look unbilled.
    if lines and not any(line.model and line.tool is None for line in lines):
        raise UnknownExport(f"no line of it names a model; {GROUPED}")
    days = {day for day, _ in read if day is not None} or {line.day for line in lines}
    return Export(tuple(sorted(days)), added_up(lines), left_out(line for line in charged if line.is_left_out))


def _read(text: str, *, is_last: bool) -> Iterator[Line]:
    stripped = text.lstrip("\ufeff \r\n\t")
    return _read_json(stripped, is_last=is_last) if stripped.startswith(("{", "[")) else _read_csv(stripped)


def _documents(text: str) -> list[Any]:
    """A list, or one document, or one a line, as BigQuery exports rows."""
    try:
        document: Any = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise UnknownExport(f"it is not valid JSON: {error}") from error
        return [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line.strip()]
    return document if isinstance(document, list) else [document]


def _read_json(text: str, *, is_last: bool) -> Iterator[Line]:
    """Reads one page of an API, or a list of pages; an empty bucket is a day without a line. A cloud's are rows."""
    pages = _documents(text)
    if pages and (read_row := cloud_reader(flat(pages[0]))) is not None:
        for row in pages:
            yield from read_row(flat(row))
        return
    if pages and is_last and pages[-1].get("has_more"):  # the missing days would look unbilled
        raise UnknownExport(
            "the API has more pages of it; fetch those too, each by the `next_page` of the one before, and put all "
            "into one JSON list, in that order"
        )
    for page in pages:
        for bucket in page["data"]:
            if "model_permaslug" in bucket:
                day = _day(bucket["date"])
                yield day, _openrouter_activity(day, bucket)
                continue
            day = _day(bucket.get("start_time", bucket.get("starting_at")))
            yield day, None
            for result in bucket["results"]:
                yield day, _json_reader(result)(day, result)


def _json_reader(result: Row) -> Callable[[date, Row], Charged]:
    if result.get("object") == "organization.costs.result":
        return _openai_cost
    if "num_model_requests" in result:
        return _openai_usage
    if "uncached_input_tokens" in result:
        return _anthropic_usage
    if "amount" in result:
        return _anthropic_cost
    raise UnknownExport(f"no known export has results with the fields {', '.join(sorted(result)[:12])}")


def _read_csv(text: str) -> Iterator[Line]:
    if text.partition("\n")[0].count(",") > MOST_COLUMNS:
        raise UnknownExport(f"no known export has more than {MOST_COLUMNS:,} columns")
    rows = csv.DictReader(io.StringIO(text))
    columns = set(rows.fieldnames or ())
    if (read_row := cloud_reader(map(plain, columns))) is not None:
        rows.fieldnames = [plain(name) for name in rows.fieldnames or ()]
        for row in rows:
            yield from read_row(row)
        return
    for needed, read in CSV_READERS.items():
        if needed <= columns:
            for row in rows:
                day = _csv_day(row)
                yield day, read(day, row)
            return
    raise UnknownExport(f"no known export has the columns {', '.join(sorted(columns)[:12]) or '(none)'}")


def _openai_cost(day: date, result: Row) -> Charged:
    amount = result["amount"]
    _require_dollars(amount["currency"])
    return _cost(day, _line_item_model(result.get("line_item")), pico_of(amount["value"]))


def _openai_usage(day: date, result: Row) -> Charged:
    """Images and speech are counted in images, seconds or characters, so only their requests can be compared."""
    if result.get("input_tokens") is None:
        return Charged(day, result.get("model") or "", requests=int(result["num_model_requests"]))
    return Charged(
        day,
        result.get("model") or "",
        requests=int(result["num_model_requests"]),
        input_tokens=int(result["input_tokens"]),
        output_tokens=int(result.get("output_tokens") or 0),
    )


def _anthropic_cost(day: date, result: Row) -> Charged:
    """`amount` is in cents; charges without a model (searches, code execution) have only a type."""
    _require_dollars(result["currency"])
    return _cost(day, _anthropic_name(result), pico_of(result["amount"], PICO_PER_CENT))


def _anthropic_usage(day: date, result: Row) -> Charged:
    """Anthropic's input excludes cache reads and writes; ours includes both."""
    written = result.get("cache_creation") or {}
    read = int(result.get("cache_read_input_tokens") or 0)
    fresh = int(result["uncached_input_tokens"]) + sum(int(tokens or 0) for tokens in written.values())
    return Charged(
        day,
        result.get("model") or "",
        input_tokens=fresh + read,
        output_tokens=int(result["output_tokens"]),
    )


def _openrouter_activity(day: date, row: Row) -> Charged:
    """Has both dollars and tokens. `usage` is what OpenRouter charges, its fee for calls with own keys included; what
    those cost at their providers is beside it, and in our books too."""
    return Charged(
        day,
        row["model"],
        pico_of(row["usage"]) + pico_of(row.get("byok_usage_inference") or 0),
        requests=int(row["requests"]),
        input_tokens=int(row["prompt_tokens"]),
        output_tokens=int(row["completion_tokens"]),
    )


def _openrouter_activity_row(day: date, row: Row) -> Charged:
    named = {name.lower().replace(" ", "_"): value for name, value in row.items()}
    return _openrouter_activity(day, named | {"model": row["Slug"], "byok_usage_inference": row["BYOK Usage"]})


def _openai_cost_row(day: date, row: Row) -> Charged | None:
    if not row["amount_value"]:
        return None  # an empty day
    _require_dollars(row["amount_currency"])
    return _cost(day, _line_item_model(row["line_item"]), pico_of(row["amount_value"]))


def _openai_usage_row(day: date, row: Row) -> Charged | None:
    return _openai_usage(day, row) if row["num_model_requests"] else None


def _anthropic_cost_row(day: date, row: Row) -> Charged:
    """The console uses display names, such as `Claude Sonnet 4.5`."""
    return _cost(day, _anthropic_name(row), pico_of(row["cost_usd"] or "0"))


def _anthropic_usage_row(day: date, row: Row) -> Charged:
    read = int(row["usage_input_tokens_cache_read"] or 0)
    written = sum(int(row.get(f"usage_input_tokens_cache_write_{ttl}") or 0) for ttl in ("5m", "1h"))
    return Charged(
        day,
        row["model_version"],
        input_tokens=int(row["usage_input_tokens_no_cache"] or 0) + written + read,
        output_tokens=int(row["usage_output_tokens"] or 0),
    )


CSV_READERS: dict[frozenset[str], Callable[[date, Row], Charged | None]] = {
    frozenset({"amount_value", "amount_currency", "line_item"}): _openai_cost_row,
    frozenset({"num_model_requests", "input_tokens", "model"}): _openai_usage_row,
    frozenset({"usage_date_utc", "cost_usd", "model"}): _anthropic_cost_row,
    frozenset({"usage_date_utc", "usage_input_tokens_no_cache", "model_version"}): _anthropic_usage_row,
    frozenset({"Date", "Slug", "Usage", "BYOK Usage"}): _openrouter_activity_row,
}


def _line_item_model(line_item: str | None) -> str:
    """The model in a line item such as `gpt-5.4-mini-2026-03-17, cached input`."""
    name = (line_item or "").partition(",")[0].strip()
    found = LINE_ITEM.fullmatch(name)
    return found[1] if found else name


def _anthropic_name(row: Row) -> str:
    kind = row.get("cost_type") or ""
    return row.get("model") or ("" if kind.startswith("token") else kind)


def _cost(day: date, name: str, pico_usd: int) -> Charged:
    tool: Tool | None = next((TOOLS[start] for start in TOOLS if model_key(name).startswith(start)), None)
    return Charged(day, name, pico_usd, tool=tool)


def _require_dollars(currency: str) -> None:
    if currency.lower() != "usd":
        raise UnknownExport(f"amounts are in {currency!r}; only USD can be compared with the books")


def _csv_day(row: Row) -> date:
    said = row.get("usage_date_utc") or row.get("start_time_iso") or row.get("Date")
    return _day(said or int(row["start_time"]))


def _day(start: Any) -> date:
    if isinstance(start, int):
        return datetime.fromtimestamp(start, UTC).date()
    moment = datetime.fromisoformat(str(start).replace("Z", "+00:00"))
    return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
