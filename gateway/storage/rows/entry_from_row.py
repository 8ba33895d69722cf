"""Converts rows made by entry_rows.py back to entries. Pure."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gateway.ledger.entry import Attempt, Cost, Decision, Entry, Intent, Media, PaidTo, Status
from gateway.storage.rows.bounded import seconds
from gateway.storage.rows.dimension import REMEMBERED
from gateway.storage.rows.entry_detail import Detail, decode_detail, facts_from, long, seconds_of
from gateway.storage.tables.columns import COST_COLUMNS, TOKEN_COLUMNS, TOOL_COLUMNS

Row = Mapping[str, Any]


@lru_cache(REMEMBERED)
def items_of(stored: str) -> tuple[Any, ...]:
    """The items of a stored JSON array. Cached, since rows have the same few."""
    return tuple(json.loads(stored))


def has_attempt_rows(row: Row) -> bool:
    """Whether the row may have attempts in their own table."""
    return decode_detail(row["detail"]).attempt is None


def entry_from(row: Row, attempt_rows: Sequence[Row]) -> Entry:
    """From a row of entries joined with its dimension and circumstance, and its attempts in order."""
    detail = decode_detail(row["detail"])
    was = (row["model"], row["backend"], row["provider"], row["upstream_model"], bool(row["is_simulated"]))
    cost = Cost(*[row[name] for name in COST_COLUMNS]) if row["list_pico_usd"] is not None else None
    bound = cost.total_pico_usd if cost and row["is_exact"] else None
    return Entry(
        intent=_intent(row, detail, items_of(row["intended"]) if row["intended"] else was),
        status=Status(row["status"]),
        model=was[0],
        backend=was[1],
        provider=was[2],
        upstream_model=was[3],
        **{name: row[name] for name in (*TOKEN_COLUMNS, *TOOL_COLUMNS)},
        is_usage_estimated=bool(row["is_usage_estimated"]),
        is_simulated=was[4],
        service_tier=row["service_tier"],
        cost=cost,
        cost_lower_pico_usd=bound if row["is_exact"] else row["lower_pico_usd"],
        cost_upper_pico_usd=bound if row["is_exact"] else row["upper_pico_usd"],
        gpu_seconds=row["gpu_us"] / 1e6,
        queue_seconds=seconds(row["queue_us"]),
        time_to_first_token_seconds=seconds(row["time_to_first_token_us"]),
        prefill_tokens_per_second=row["prefill_tokens_per_second"],
        decode_tokens_per_second=row["decode_tokens_per_second"],
        total_seconds=row["total_us"] / 1e6,
        finish_reason=row["finish_reason"],
        http_status=row["http_status"],
        error=row["error"],
        attempts=_attempts(detail, was, attempt_rows),
        media=None if detail.media is None else msgspec.convert(detail.media, Media),
        charged_pico_usd=detail.charged,
    )


def _intent(row: Row, detail: Detail, meant: Sequence[Any]) -> Intent:
    model, backend, provider, upstream_model, is_simulated = meant
    return Intent(
        request_id=bytes(row["request_id"]).hex(),
        accepted_at_us=row["accepted_at_us"],
        key_id=row["key_id"],
        team=row["team"],
        project=row["project"],
        tags=items_of(row["tags"]),
        operation=row["operation"],
        requested_model=row["requested_model"],
        is_stream=bool(row["is_stream"]),
        decision=_decision(row, detail, model),
        backend=backend,
        provider=provider,
        upstream_model=upstream_model,
        cost_bound_pico_usd=detail.cost_bound,
        is_simulated=is_simulated,
        allowed_models=None if row["allowed_models"] is None else items_of(row["allowed_models"]),
        batch_id=row["batch_id"],
        end_user=row["end_user"],
    )


def _decision(row: Row, detail: Detail, model: str) -> Decision:
    candidates = items_of(row["candidates"])
    return Decision(
        rule=row["rule"],
        model=model,
        candidates=candidates,
        expected_cost_pico_usd=detail.expected_cost,
        predicted_quality=None if detail.predicted_quality is None else long(detail.predicted_quality),
        propensity=long(detail.propensity),
        rules_version=row["rules_version"],
        prices_version=row["prices_version"],
        classifier_version=row["classifier_version"],
        facts=facts_from(detail, candidates, row["predicted_models"]),
        exploration_pico_usd=detail.exploration_cost,
        escalates_to=detail.escalates_to,
    )


def _attempts(detail: Detail, was: tuple[str, str, str, str, bool], rows: Sequence[Row]) -> tuple[Attempt, ...]:
    if detail.attempt is not None:
        number, started, lasted, cost, status = detail.attempt
        return (Attempt(number, was[0], was[1], "answered", seconds_of(started), seconds_of(lasted), cost, status),)
    return tuple(
        Attempt(
            row["number"],
            row["model"],
            row["backend"],
            row["outcome"],
            row["started_after_us"] / 1e6,
            row["lasted_us"] / 1e6,
            row["cost_pico_usd"],
            row["http_status"],
            _paid_to(row),
        )
        for row in rows
    )


def _paid_to(row: Row) -> PaidTo | None:
    if row["provider"] is None:
        return None
    names = ("provider", "upstream_model", "is_simulated", "lower_pico_usd", "upper_pico_usd")
    provider, upstream_model, is_simulated, lower, upper = (row[name] for name in names)
    return PaidTo(provider, upstream_model, bool(is_simulated), lower, upper)
