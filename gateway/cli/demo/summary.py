"""What came of a run of prompts: figures from its ledger entries alone, and how a person sees them. Sends nothing."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from backends.usage import Usage
from gateway.cli.show_table import show_table
from gateway.composition.deployment import load_deployment
from gateway.config.home import find_home
from gateway.money import format_usd, parse_usd
from gateway.pricing.price import price
from gateway.routing.snapshot import Candidate


@dataclass(frozen=True, slots=True)
class Tier:
    """One model's share of the run. Times are seconds; costs are decimal text in USD."""

    model: str
    is_simulated: bool
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_usd: str
    unpriced: int
    time_to_first_token_p50: float | None
    time_to_first_token_p95: float | None
    decode_tokens_per_second_p50: float | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the same tokens would have cost at one hosted model's list price."""

    model: str
    is_simulated: bool
    cost_usd: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole run. `entries` counts ledger entries found, one per answered request; `problems`, why others failed."""

    sent: int
    failed: int
    problems: dict[str, int]
    entries: int
    cost_usd: str
    tiers: list[Tier]
    baselines: list[Baseline]


def summarise(sent: int, problems: Sequence[str], entries: Sequence[dict[str, Any]]) -> Summary:
    """Figures from ledger entries alone. `problems`: one sentence for every prompt that was not answered."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        by_model.setdefault(entry["model"], []).append(entry)
    total = sum(_cost(entry) for entry in entries)
    tiers = [_tier(model, rows) for model, rows in sorted(by_model.items(), key=lambda item: -len(item[1]))]
    counted = dict(Counter(problems).most_common())
    return Summary(sent, len(problems), counted, len(entries), format_usd(total), tiers, baselines(entries))


def _cost(entry: dict[str, Any]) -> int:
    return parse_usd(entry["cost_usd"]) if entry["cost_usd"] is not None else 0


def _tier(model: str, rows: Sequence[dict[str, Any]]) -> Tier:
    first = [row["time_to_first_token_seconds"] for row in rows if row["time_to_first_token_seconds"] is not None]
    speed = [row["decode_tokens_per_second"] for row in rows if row["decode_tokens_per_second"] is not None]
    return Tier(
        model=model,
        is_simulated=any(row["is_simulated"] for row in rows),
        requests=len(rows),
        input_tokens=sum(row["input_tokens"] for row in rows),
        cached_input_tokens=sum(row["cached_input_tokens"] for row in rows),
        output_tokens=sum(row["output_tokens"] for row in rows),
        cost_usd=format_usd(sum(_cost(row) for row in rows)),
        unpriced=sum(row["cost_usd"] is None for row in rows),
        time_to_first_token_p50=percentile(first, 0.5),
        time_to_first_token_p95=percentile(first, 0.95),
        decode_tokens_per_second_p50=percentile(speed, 0.5),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def baselines(entries: Sequence[dict[str, Any]]) -> list[Baseline]:
    """Every request at the cheapest and at the dearest hosted model's list price, with its own token counts.

    Tokenizers differ between models; the counts are those of whoever answered.
    """
    deployment = load_deployment(find_home())
    at_us = max((entry["accepted_at_us"] for entry in entries), default=0)
    snapshot = deployment.catalogue.snapshot(deployment.rules, deployment.prices, classifier_version="", at_us=at_us)
    candidates = snapshot.candidates.values()
    hosted = [one for one in candidates if one.prices is not None and not one.is_local and one.specialty is None]
    priced = sorted(((_all_at(one, entries), one) for one in hosted), key=lambda pair: (pair[0], pair[1].name))
    ends = priced[:1] + priced[-1:] if len(priced) > 1 else priced
    return [Baseline(one.name, one.is_simulated, format_usd(cost)) for cost, one in ends]


def _all_at(candidate: Candidate, entries: Sequence[dict[str, Any]]) -> int:
    assert candidate.prices is not None
    return sum(
        price(
            Usage(input_tokens=entry["input_tokens"], output_tokens=entry["output_tokens"]), candidate.prices
        ).list_pico_usd
        for entry in entries
    )


def show(summary: Summary, console: Console) -> None:
    """Tables for a person."""
    table = Table(
        "model", "requests", "tokens in (cached) / out", "cost USD", "first token p50 / p95 s", "decode tokens/s p50",
        title="Where the prompts went",
    )  # fmt: skip
    for tier in summary.tiers:
        table.add_row(
            tier.model + (" (simulated)" if tier.is_simulated else ""),
            str(tier.requests),
            f"{tier.input_tokens:,} ({tier.cached_input_tokens:,}) / {tier.output_tokens:,}",
            f"{float(tier.cost_usd):.6f}" + (f", {tier.unpriced} unpriced" if tier.unpriced else ""),
            f"{_figure(tier.time_to_first_token_p50)} / {_figure(tier.time_to_first_token_p95)}",
            _figure(tier.decode_tokens_per_second_p50),
        )
    show_table(table)
    share = "all" if all(tier.is_simulated for tier in summary.tiers) else "part"
    simulated = f" ({share} of it simulated)" if any(tier.is_simulated for tier in summary.tiers) else ""
    entries = "1 ledger entry" if summary.entries == 1 else f"{summary.entries} ledger entries"
    console.print(f"{summary.sent} sent, {summary.failed} failed, {entries}.")
    for problem, count in summary.problems.items():
        console.print(f"- {count} failed with {problem}", markup=False)
    if unseen := summary.sent - summary.failed - summary.entries:
        console.print(f"- {unseen} answered but not booked yet, and in no figure here: see `breakeven logs` later")
    console.print(f"Cost of this run: ${summary.cost_usd}{simulated}")
    for baseline in summary.baselines:
        kind = " (simulated)" if baseline.is_simulated else ""
        ratio = f", {parse_usd(baseline.cost_usd) / max(1, parse_usd(summary.cost_usd)):.2f} times this run"
        console.print(f"The same tokens, all sent to {baseline.model}{kind}: ${baseline.cost_usd}{ratio}")
    console.print("Your own engine's cost is its GPU-seconds; its idle hours are in `breakeven break-even`.")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
