"""Converts an entry to rows, mostly of integers; entry_from_row.py converts back. Pure.

Lossless except for durations, which are rounded to microseconds. Facts and decision are exact, since decisions are
replayed from them.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from gateway.ledger.entry import Attempt, Cost, Entry
from gateway.storage.rows.bounded import MOST_CALLS, MOST_PICO_USD, MOST_TOKENS, all_fit, clean, finite, micros, money
from gateway.storage.rows.dimension import Circumstance, Dimension, circumstance_of, dimension_of
from gateway.storage.rows.entry_detail import encode_detail
from gateway.storage.rows.paid_parts import PaidPart, paid_parts
from gateway.storage.tables.columns import BOUND_COLUMNS, COST_COLUMNS, TOKEN_COLUMNS, TOOL_COLUMNS

FIGURES = (*TOKEN_COLUMNS, *TOOL_COLUMNS, *COST_COLUMNS, "gpu_us", "total_us")
"""The columns that are summed."""
ROW = (
    "request_id",
    "accepted_at_us",
    *FIGURES,
    *BOUND_COLUMNS,
    "queue_us",
    "time_to_first_token_us",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "detail",
    "batch_id",
    "end_user",
)
"""The columns of `entries` in `EntryRows.row`: all but the two ids."""
Figures = tuple[int | None, ...]
_tokens: Callable[[Entry], tuple[int, ...]] = attrgetter(*TOKEN_COLUMNS)
_tools: Callable[[Entry], tuple[int, ...]] = attrgetter(*TOOL_COLUMNS)
_costs: Callable[[Cost], tuple[int, ...]] = attrgetter(*COST_COLUMNS)
_UNKNOWN = (None,) * len(COST_COLUMNS)


class EntryRows(msgspec.Struct, frozen=True):
    """Everything to insert for one entry."""

    entry: Entry
    dimension: Dimension
    circumstance: Circumstance
    figures: Figures
    row: tuple[Any, ...]
    attempts: Sequence[dict[str, Any]]
    paid_parts: Sequence[PaidPart]


def figures_of(entry: Entry) -> Figures:
    """In the order of FIGURES, clamped to the bounds of a row; unknown costs are None."""
    return (
        *all_fit(_tokens(entry), MOST_TOKENS),
        *all_fit(_tools(entry), MOST_CALLS),
        *(_UNKNOWN if entry.cost is None else all_fit(_costs(entry.cost), MOST_PICO_USD)),
        micros(entry.gpu_seconds) or 0,
        micros(entry.total_seconds) or 0,
    )


def entry_rows(entry: Entry) -> EntryRows:
    """Raises ValueError if the request id is not 32 hexadecimal digits."""
    number, accepted_at_us = bytes.fromhex(entry.intent.request_id), entry.intent.accepted_at_us
    if len(number) != 16:
        raise ValueError(f"request id {entry.intent.request_id!r} is not 32 hexadecimal digits")
    circumstance, figures, plain = circumstance_of(entry), figures_of(entry), _is_plain(entry)
    row = (
        number,
        accepted_at_us,
        *figures,
        None if circumstance.is_exact else money(entry.cost_lower_pico_usd),
        None if circumstance.is_exact else money(entry.cost_upper_pico_usd),
        micros(entry.queue_seconds),
        micros(entry.time_to_first_token_seconds),
        finite(entry.prefill_tokens_per_second),
        finite(entry.decode_tokens_per_second),
        encode_detail(entry, is_plain=plain),
        clean(entry.intent.batch_id),
        clean(entry.intent.end_user),
    )
    attempts = () if plain else [_attempt_row(number, accepted_at_us, one) for one in entry.attempts]
    parts = () if plain else paid_parts(entry)
    return EntryRows(entry, dimension_of(entry), circumstance, figures, row, attempts, parts)


def _is_plain(entry: Entry) -> bool:
    """Whether the entry itself describes its only attempt, or has none."""
    if len(entry.attempts) != 1:
        return not entry.attempts
    one = entry.attempts[0]
    return one.outcome == "answered" and one.model == entry.model and one.backend == entry.backend


def _attempt_row(number: bytes, accepted_at_us: int, one: Attempt) -> dict[str, Any]:
    paid = one.paid_to
    return {
        "request_id": number,
        "accepted_at_us": accepted_at_us,
        "number": one.number,
        "model": clean(one.model),
        "backend": clean(one.backend),
        "outcome": clean(one.outcome),
        "started_after_us": micros(one.started_after_seconds) or 0,
        "lasted_us": micros(one.lasted_seconds) or 0,
        "cost_pico_usd": money(one.cost_pico_usd),
        "http_status": one.http_status,
        "provider": clean(paid.provider) if paid else None,
        "upstream_model": clean(paid.upstream_model) if paid else None,
        "is_simulated": paid.is_simulated if paid else None,
        "lower_pico_usd": money(paid.lower_pico_usd) if paid else None,
        "upper_pico_usd": money(paid.upper_pico_usd) if paid else None,
    }
