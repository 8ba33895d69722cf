"""What the same tokens would have cost at one hosted model, minus what they did cost. Pure."""

from collections import Counter
from collections.abc import Sequence

from gateway.economics.traffic import HourlyTraffic
from gateway.kept_answers.response_cache import BACKEND as RESPONSE_CACHE
from gateway.ledger.entry import OFF_PATH, Status
from gateway.money import format_usd, parse_usd
from gateway.pricing.price import usual, write_rates
from gateway.reports.plans import hosted_alternative, hosted_candidates, pick_alternative, to_be_had
from gateway.reports.views import IdleCost, Savings
from gateway.routing.rules import SPECIALTIES
from gateway.routing.snapshot import Candidate, Snapshot
from gateway.sums import Dimension, Sums

BY: tuple[Dimension, ...] = ("model", "operation", "status", "backend")


def savings(snapshot: Snapshot, groups: Sequence[Sums], idle: IdleCost | None) -> list[Savings]:
    """Compared with the most used and the most expensive hosted model; `groups` are all traffic, by BY. Idle rent,
    shadow calls and their judge count as spent. Left out on both sides: groups without a known cost, and what no chat
    model produces (embeddings, images, speech, transcripts, moderation, rankings). Answers from the response cache are
    not counted, nor requests that failed without a token.

    Uses the ordinary prices of `snapshot`, not those at the time of the requests. Empty without a priced hosted model
    or without requests.
    """
    hosted = hosted_candidates(snapshot)
    groups = [row for row in groups if row.group["operation"] not in SPECIALTIES]
    asked = [row for row in groups if _answers_a_caller(row) and not row.is_wholly_unpriced]
    if not hosted or not asked:
        return []
    chosen = {one.name: one for one in (pick_alternative(snapshot, None, _most_used(asked)), to_be_had(hosted)[-1])}
    traffic = HourlyTraffic(
        hour_start_us=0,
        model="",
        requests=sum(row.priced(row.requests) for row in asked),
        input_tokens=sum(row.priced(row.input_tokens) for row in asked),
        cached_input_tokens=sum(row.priced(row.cached_input_tokens) for row in asked),
        output_tokens=sum(row.priced(row.output_tokens) for row in asked),
        gpu_seconds=0.0,
        cost_pico_usd=0,
        list_cost_pico_usd=0,
        aborted_requests=sum(row.priced(row.aborted_requests) for row in asked),
    )
    spent = sum(row.corrected_cost_pico_usd for row in groups) + (0 if idle is None else parse_usd(idle.idle_usd))
    found: list[Savings] = []
    for candidate in chosen.values():
        would = hosted_alternative(candidate).price(traffic) + _written(candidate, asked)
        found.append(
            Savings(
                against=candidate.name,
                would_have_cost_usd=format_usd(would),
                saved_usd=format_usd(would - spent),
                saved_share=(would - spent) / would if would else None,
                covered_requests=traffic.requests,
            )
        )
    return found


def _answers_a_caller(row: Sums) -> bool:
    is_failed = row.group["status"] == Status.failed and not row.input_tokens + row.output_tokens
    return not is_failed and row.group["operation"] not in OFF_PATH and row.group["backend"] != RESPONSE_CACHE


def _written(candidate: Candidate, asked: Sequence[Sums]) -> int:
    """The extra cost there of tokens written to a prompt cache. Without it, the same requests at the same model would
    seem cheaper than they were."""
    assert candidate.prices is not None
    rates, multiplier = usual(candidate.prices, candidate.asked_tier)
    short, long = write_rates(rates)
    more = sum(row.priced(row.cache_write_5m_tokens) for row in asked) * (short - rates.input)
    more += sum(row.priced(row.cache_write_1h_tokens) for row in asked) * (long - rates.input)
    return round(more * multiplier * (1 - candidate.prices.discount))


def _most_used(groups: Sequence[Sums]) -> list[str]:
    requests: Counter[str] = Counter()
    for row in groups:
        requests[row.group["model"] or ""] += row.requests
    return [model for model, _ in requests.most_common()]
