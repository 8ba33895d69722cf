"""An Entry as rows of integers, and back. Pure.

What comes back equals what was put in, but for durations, which are kept to the microsecond. Facts and decision are
kept exactly: a decision is replayed from them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gateway.ledger.entry import Attempt, Cost, Decision, Entry, Intent, PaidTo, Status
from gateway.storage.bounded import MOST_CALLS, MOST_TOKENS, clean, finite, fit, micros, money, seconds
from gateway.storage.entry_detail import Detail, decode_detail, encode_detail, facts_from, long, seconds_of

Row = Mapping[str, Any]
COST_FIELDS = ("input", "cached_input", "cache_write", "output", "other", "compute", "list")
COST_COLUMNS = tuple(f"{name}_pico_usd" for name in COST_FIELDS)
TOKEN_FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
TOOL_FIELDS = ("web_searches", "file_searches", "other_tool_calls")


class Dimension(NamedTuple):
    """What costs are summed by; the columns of `dimensions` in order."""

    key_id: str
    team: str | None
    project: str | None
    tags: str
    operation: str
    model: str
    backend: str
    provider: str
    upstream_model: str
    rule: str
    status: str
    is_simulated: bool


class Circumstance(NamedTuple):
    """What else repeats; the columns of `circumstances` in order."""

    requested_model: str
    is_stream: bool
    rules_version: str
    prices_version: str
    classifier_version: str
    candidates: str
    intended: str | None
    service_tier: str | None
    finish_reason: str | None
    http_status: int
    error: str | None
    is_usage_estimated: bool
    is_exact: bool
    allowed_models: str | None


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Everything to insert for one entry; `row` still lacks its two ids."""

    dimension: Dimension
    circumstance: Circumstance
    row: dict[str, Any]
    attempts: list[dict[str, Any]]


def digest(values: Sequence[object]) -> bytes:
    """The unique key of a dimension or circumstance."""
    return hashlib.blake2b(json.dumps(list(values), separators=(",", ":")).encode(), digest_size=16).digest()


@lru_cache(4096)
def json_list(items: tuple[str, ...]) -> str:
    return json.dumps(list(items), ensure_ascii=False, separators=(",", ":"))


@lru_cache(4096)
def items_of(stored: str) -> tuple[Any, ...]:
    """The items of a stored JSON array: the same few come with every row."""
    return tuple(json.loads(stored))


def has_attempt_rows(row: Row) -> bool:
    """Whether the row's attempts may be kept apart."""
    return decode_detail(row["detail"]).attempt is None


def dimension_of(entry: Entry) -> Dimension:
    intent = entry.intent
    return Dimension(
        clean(intent.key_id),
        clean(intent.team),
        clean(intent.project),
        clean(json_list(intent.tags)),
        clean(intent.operation),
        clean(entry.model),
        clean(entry.backend),
        clean(entry.provider),
        clean(entry.upstream_model),
        clean(intent.decision.rule),
        entry.status.value,
        entry.is_simulated,
    )


def is_exact(entry: Entry) -> bool:
    """Both bounds are the cost itself."""
    total = entry.cost.total_pico_usd if entry.cost else None
    return total is not None and entry.cost_lower_pico_usd == total and entry.cost_upper_pico_usd == total


def circumstance_of(entry: Entry) -> Circumstance:
    intent, decision = entry.intent, entry.intent.decision
    meant = [decision.model, intent.backend, intent.provider, intent.upstream_model, intent.is_simulated]
    was = [entry.model, entry.backend, entry.provider, entry.upstream_model, entry.is_simulated]
    return Circumstance(
        clean(intent.requested_model),
        intent.is_stream,
        clean(decision.rules_version),
        clean(decision.prices_version),
        clean(decision.classifier_version),
        clean(json_list(decision.candidates)),
        None if meant == was else json.dumps(meant, separators=(",", ":")),
        clean(entry.service_tier),
        clean(entry.finish_reason),
        entry.http_status,
        clean(entry.error),
        entry.is_usage_estimated,
        is_exact(entry),
        None if intent.allowed_models is None else clean(json_list(intent.allowed_models)),
    )


def figures_of(entry: Entry) -> dict[str, int | None]:
    """What is summed up column by column, within the bounds of a row; costs that are not known are None."""
    cost = entry.cost
    return {
        **{name: fit(getattr(entry, name), MOST_TOKENS) for name in TOKEN_FIELDS},
        **{name: fit(getattr(entry, name), MOST_CALLS) for name in TOOL_FIELDS},
        **{name: None if cost is None else money(getattr(cost, name)) for name in COST_COLUMNS},
        "gpu_us": micros(entry.gpu_seconds) or 0,
        "total_us": micros(entry.total_seconds) or 0,
    }


def entry_rows(entry: Entry) -> EntryRows:
    """Raises ValueError when the request id is not 32 hexadecimal digits."""
    number = bytes.fromhex(entry.intent.request_id)
    key: dict[str, Any] = {"request_id": number, "accepted_at_us": entry.intent.accepted_at_us}
    if len(number) != 16:
        raise ValueError(f"request id {entry.intent.request_id!r} is not 32 hexadecimal digits")
    exact, plain = is_exact(entry), _is_plain(entry)
    row: dict[str, Any] = {
        **key,
        **figures_of(entry),
        "lower_pico_usd": None if exact else money(entry.cost_lower_pico_usd),
        "upper_pico_usd": None if exact else money(entry.cost_upper_pico_usd),
        "queue_us": micros(entry.queue_seconds),
        "time_to_first_token_us": micros(entry.time_to_first_token_seconds),
        "prefill_tokens_per_second": finite(entry.prefill_tokens_per_second),
        "decode_tokens_per_second": finite(entry.decode_tokens_per_second),
        "detail": encode_detail(entry, is_plain=plain),
    }
    attempts = [] if plain else [{**key, **_attempt_row(one)} for one in entry.attempts]
    return EntryRows(dimension_of(entry), circumstance_of(entry), row, attempts)


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
        **{name: row[name] for name in (*TOKEN_FIELDS, *TOOL_FIELDS)},
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
        facts=facts_from(detail, (*candidates, *detail.more_names)),
        exploration_pico_usd=detail.exploration_cost,
        escalates_to=detail.escalates_to,
    )


def _is_plain(entry: Entry) -> bool:
    """No attempt failed: the one there is, if any, is described by the entry."""
    if not entry.attempts:
        return True
    [first, *others] = entry.attempts
    return not others and first.outcome == "answered" and (first.model, first.backend) == (entry.model, entry.backend)


def _attempt_row(one: Attempt) -> dict[str, Any]:
    paid = one.paid_to
    return {
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
