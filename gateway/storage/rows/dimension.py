"""The values of an entry that repeat from request to request, as rows of `dimensions` and `circumstances`. Pure.

Both are cached: millions of requests have a few hundred different ones.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gateway.ledger.entry import Entry
from gateway.storage.rows.bounded import clean

REMEMBERED = 4096


class Dimension(NamedTuple):
    """The values by which costs are summed; the columns of `dimensions`, in order."""

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
    """Other values that repeat; the columns of `circumstances`, in order."""

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
    predicted_models: bytes | None


def digest(values: Sequence[object]) -> bytes:
    """The unique key of a dimension or circumstance."""
    text = json.dumps(list(values), separators=(",", ":"), default=bytes.hex)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _stored(value: object) -> Any:
    """A list of names as JSON, and text that every database accepts."""
    if isinstance(value, tuple):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return clean(value) if isinstance(value, str) else value


@lru_cache(REMEMBERED)
def _dimension(*columns: object) -> Dimension:
    return Dimension._make(map(_stored, columns))


@lru_cache(REMEMBERED)
def _circumstance(*columns: object) -> Circumstance:
    return Circumstance._make(map(_stored, columns))


def dimension_of(entry: Entry) -> Dimension:
    intent = entry.intent
    return _dimension(
        intent.key_id,
        intent.team,
        intent.project,
        intent.tags,
        intent.operation,
        entry.model,
        entry.backend,
        entry.provider,
        entry.upstream_model,
        intent.decision.rule,
        str(entry.status),
        entry.is_simulated,
    )


def is_exact(entry: Entry) -> bool:
    """Whether both bounds equal the cost."""
    lower = entry.cost_lower_pico_usd
    return entry.cost is not None and lower == entry.cost_upper_pico_usd and lower == entry.cost.total_pico_usd


def circumstance_of(entry: Entry) -> Circumstance:
    intent, decision = entry.intent, entry.intent.decision
    meant = (decision.model, intent.backend, intent.provider, intent.upstream_model, intent.is_simulated)
    was = (entry.model, entry.backend, entry.provider, entry.upstream_model, entry.is_simulated)
    return _circumstance(
        intent.requested_model,
        intent.is_stream,
        decision.rules_version,
        decision.prices_version,
        decision.classifier_version,
        decision.candidates,
        None if meant == was else json.dumps(meant, separators=(",", ":")),
        entry.service_tier,
        entry.finish_reason,
        entry.http_status,
        entry.error,
        entry.is_usage_estimated,
        is_exact(entry),
        intent.allowed_models,
        None if decision.facts.predictions is None else decision.facts.predictions.models,
    )
