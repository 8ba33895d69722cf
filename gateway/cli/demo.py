"""`breakeven demo FILE.jsonl`: real prompts through the running endpoint, and what came of them, from the ledger."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn as Bar
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backends.usage import Usage
from gateway.cli.demo_key import demo_key
from gateway.cli.demo_month import run_month
from gateway.cli.show_table import show_table
from gateway.config.home import find_home
from gateway.deployment import load_deployment
from gateway.errors import ConfigurationError, StateError
from gateway.money import format_usd, parse_usd
from gateway.pricing.price import price
from gateway.routing.decide import SIMULATE_TAG
from gateway.routing.snapshot import Candidate

TAGS = f"demo,{SIMULATE_TAG}"
BOOKING_SECONDS = 60.0
POLL_SECONDS = 0.5
MONTH_REQUESTS = 20_000
KEY_SECONDS = 5.0


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
    """The whole run. `entries` counts ledger entries found, one per answered request."""

    sent: int
    failed: int
    entries: int
    cost_usd: str
    tiers: list[Tier]
    baselines: list[Baseline]


def command(
    file: Path | None = typer.Argument(None, help="JSON lines with `prompt` (text) or `messages`."),
    month: bool = typer.Option(
        False, "--month", help="Instead: make up a month in a database of its own; calls nobody."
    ),
    url: str = typer.Option("http://127.0.0.1:8080", help="The running gateway."),
    key: str = typer.Option("", envvar="BREAKEVEN_API_KEY", help="An app key; without one a key for a day is made."),
    limit: int = typer.Option(300, min=1, help="How many prompts to send."),
    concurrency: int = typer.Option(8, min=1, help="Requests at once."),
    max_tokens: int = typer.Option(48, min=1, help="Output limit of each request."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Send prompts with `model="auto"` and print where they went, what they cost and how fast they were.

    Without any provider key the hosted side is simulated at list prices, and every line that contains it says so.
    """
    if month:
        run_month(find_home(), requests=MONTH_REQUESTS, as_json=as_json)
        return
    if file is None:
        raise typer.BadParameter("give a file of prompts, or --month")
    prompts = load_prompts(file, limit)
    console = Console(stderr=as_json)
    summary = asyncio.run(_run(prompts, url, key, concurrency, max_tokens, console))
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        show(summary, console)


def load_prompts(file: Path, limit: int) -> list[list[dict[str, Any]]]:
    """The messages of the first `limit` lines. Raises ConfigurationError naming the line that is wrong."""
    prompts: list[list[dict[str, Any]]] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("is not UTF-8 text", file=str(file)) from error
    for number, line in enumerate(lines, 1):
        if len(prompts) == limit:
            break
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            messages = row.get("messages") or [{"role": "user", "content": str(row["prompt"])}]
        except (ValueError, KeyError, AttributeError) as error:
            raise ConfigurationError(
                "needs an object with `prompt` or `messages`", file=str(file), line=number
            ) from error
        prompts.append(messages)
    if not prompts:
        raise ConfigurationError("holds no prompt", file=str(file))
    return prompts


async def _run(
    prompts: Sequence[list[dict[str, Any]]], url: str, key: str, concurrency: int, max_tokens: int, console: Console
) -> Summary:
    async with demo_key(key) as usable:
        headers = {"authorization": f"Bearer {usable}", "x-breakeven-tags": TAGS}
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=600, limits=limits) as client:
            await _require_gateway(client)
            ids = await _send_all(client, prompts, concurrency, max_tokens, console)
            answered = [one for one in ids if one is not None]
            entries = await _entries(client, answered)
    return summarise(len(prompts), len(prompts) - len(answered), entries)


async def _require_gateway(client: httpx.AsyncClient) -> None:
    """A key made a moment ago is known to the running gateway within a second. Raises StateError."""
    deadline = asyncio.get_running_loop().time() + KEY_SECONDS
    while True:
        try:
            answer = await client.get("/v1/models")
        except httpx.HTTPError as error:
            raise StateError(f"nothing answers at {client.base_url}; start it with `make serve`") from error
        if answer.status_code == 200:
            return
        if answer.status_code != 401 or asyncio.get_running_loop().time() > deadline:
            raise StateError(f"the gateway refused: {answer.json()['error']['message']}")
        await asyncio.sleep(POLL_SECONDS)


async def _send_all(
    client: httpx.AsyncClient,
    prompts: Sequence[list[dict[str, Any]]],
    concurrency: int,
    max_tokens: int,
    console: Console,
) -> list[str | None]:
    gate = asyncio.Semaphore(concurrency)
    columns = (TextColumn("{task.description}"), Bar(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("prompts", total=len(prompts))

        async def one(messages: list[dict[str, Any]]) -> str | None:
            async with gate:
                try:
                    return await _send(client, messages, max_tokens)
                finally:
                    progress.advance(task)

        return await asyncio.gather(*(one(messages) for messages in prompts))


async def _send(client: httpx.AsyncClient, messages: list[dict[str, Any]], max_tokens: int) -> str | None:
    """The request's id, or None when it was refused or broke; the stream is read to its end."""
    body = {"model": "auto", "messages": messages, "max_tokens": max_tokens, "stream": True}
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_bytes():
                pass
            return answer.headers.get("x-breakeven-request-id") if answer.status_code == 200 else None
    except httpx.HTTPError:
        return None


async def _entries(client: httpx.AsyncClient, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Each request's ledger entry, waiting for those still on their way from the journal to the database."""
    waiting, found = list(ids), list[dict[str, Any]]()
    deadline = asyncio.get_running_loop().time() + BOOKING_SECONDS
    while waiting and asyncio.get_running_loop().time() < deadline:
        left: list[str] = []
        for request_id in waiting:
            answer = await client.get(f"/v1/requests/{request_id}")
            if answer.status_code == 200:
                found.append(answer.json())
            else:
                left.append(request_id)
        waiting = left
        if waiting:
            await asyncio.sleep(POLL_SECONDS)
    return found


def summarise(sent: int, failed: int, entries: Sequence[dict[str, Any]]) -> Summary:
    """Figures from ledger entries alone."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        by_model.setdefault(entry["model"], []).append(entry)
    total = sum(_cost(entry) for entry in entries)
    tiers = [_tier(model, rows) for model, rows in sorted(by_model.items(), key=lambda item: -len(item[1]))]
    return Summary(sent, failed, len(entries), format_usd(total), tiers, baselines(entries))


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
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def baselines(entries: Sequence[dict[str, Any]]) -> list[Baseline]:
    """Every request at the cheapest and at the dearest hosted model's list price, with its own token counts.

    Tokenizers differ between models; the counts are those of whoever answered.
    """
    deployment = load_deployment(find_home())
    at_us = max((entry["accepted_at_us"] for entry in entries), default=0)
    snapshot = deployment.catalogue.snapshot(deployment.rules, deployment.prices, classifier_version="", at_us=at_us)
    hosted = [one for one in snapshot.candidates.values() if not one.is_local and one.prices is not None]
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
    simulated = " (part of it simulated)" if any(tier.is_simulated for tier in summary.tiers) else ""
    console.print(f"{summary.sent} sent, {summary.failed} failed, {summary.entries} ledger entries.")
    console.print(f"Cost of this run: ${summary.cost_usd}{simulated}")
    for baseline in summary.baselines:
        kind = " (simulated)" if baseline.is_simulated else ""
        ratio = f", {parse_usd(baseline.cost_usd) / max(1, parse_usd(summary.cost_usd)):.2f} times this run"
        console.print(f"The same tokens, all sent to {baseline.model}{kind}: ${baseline.cost_usd}{ratio}")
    console.print("The own engine's cost is its GPU-seconds; what it idles is in `breakeven break-even`.")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
