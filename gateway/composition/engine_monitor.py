"""Monitors the health of our backends twice a second, and measures a throughput curve."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Annotated

import httpx
import msgspec

from backends.protocol import Backend
from gateway.config.engine_curve import LARGEST_CONCURRENCY, CurveFile, PositiveSpeed
from gateway.errors import StateError
from gateway.upstreams.load import Upstreams

log = logging.getLogger(__name__)
HEALTH_SECONDS = 0.5
SWEEP_OUTPUT_TOKENS = 32
SWEEP_TEXT = "Count the days of a long voyage and say what happened on each of them. " * 12


class Timings(msgspec.Struct, frozen=True):
    """The bundled engine's own measurements of one answer; no other server reports them."""

    decode_tokens_per_second: PositiveSpeed
    prefill_tokens_per_second: PositiveSpeed
    mean_batch_size: Annotated[float, msgspec.Meta(ge=1, le=LARGEST_CONCURRENCY)]


class TimedAnswer(msgspec.Struct, frozen=True):
    """The part of an answer that a sweep reads."""

    x_breakeven: Timings


class Places(msgspec.Struct, frozen=True):
    """The part of the engine's health that a sweep reads."""

    max_concurrency: int


async def watch_health(
    backends: Mapping[str, Backend], upstreams: Upstreams, *, every_seconds: float = HEALTH_SECONDS
) -> None:
    """Keeps `upstreams.health` current for backends that report load; until cancelled."""
    while True:
        reports = await asyncio.gather(*(backend.health() for backend in backends.values()))
        for name, report in zip(backends, reports, strict=True):
            before = upstreams.health.get(name)
            was_healthy = before is None or before.is_healthy
            if report.is_healthy != was_healthy and name not in upstreams.starting:
                because = f" ({report.detail})" if report.detail else ""
                log.warning("backend %s is %s%s", name, "up" if report.is_healthy else "down", because)
            upstreams.note_health(name, report)
        await asyncio.sleep(every_seconds)


async def measure_curve(
    engine_url: str, model: str, *, sweep: Sequence[int] | None = None, progress: Callable[[str], None] = lambda _: None
) -> CurveFile:
    """A short sweep against a running engine: real requests, the engine's own timings. Without `sweep`, up to as many
    at once as it answers, since nothing is extrapolated. A point is at as many as ran together.

    Raises httpx.HTTPError if the engine does not answer, and StateError if it refuses, reports no timings or answers
    fewer at once.
    """
    points: list[tuple[int, float]] = []
    prefill = 0.0
    limits = httpx.Limits(max_connections=None)  # by default the hundredth and later requests wait
    async with httpx.AsyncClient(base_url=engine_url, timeout=300, limits=limits, trust_env=False) as client:
        await _ask(client, model, "warm-up", 0)
        most = await _places(client, f"{engine_url.removesuffix('/v1')}/health")
        sweep = sweep or sweep_up_to(most)
        if max(sweep) > most:
            raise StateError(f"the engine answers {most} requests at once: choose a --concurrency of up to {most}")
        for concurrency in sweep:
            progress(f"measuring the engine at concurrency {concurrency}")
            began = asyncio.get_running_loop().time()
            # First the prompts alone: answers would wait while those of others are read.
            read = await asyncio.gather(*(_ask(client, model, SWEEP_TEXT, i, tokens=2) for i in range(concurrency)))
            answers = await asyncio.gather(*(_ask(client, model, SWEEP_TEXT, i) for i in range(concurrency)))
            elapsed = asyncio.get_running_loop().time() - began
            log.info("engine sweep: %d at once in %.2f s", concurrency, elapsed)
            # On a fast GPU the first of many have ended before the last have come.
            together = round(fmean(answer.mean_batch_size for answer in answers))
            points.append((together, together * fmean(answer.decode_tokens_per_second for answer in answers)))
            prefill = max(prefill, *(answer.prefill_tokens_per_second for answer in read))
    return CurveFile(model, prefill, points)


def sweep_up_to(most: int) -> Sequence[int]:
    """From 1, doubled each time, or times four where more than 8 are answered at once."""
    factor = 2 if most <= 8 else 4
    return sorted({min(factor**power, most) for power in range(most.bit_length() + 1)})


async def _places(client: httpx.AsyncClient, url: str) -> int:
    response = await client.get(url)
    try:
        return msgspec.json.decode(response.content, type=Places).max_concurrency
    except msgspec.DecodeError as error:
        raise StateError(f"{url} does not say how many requests the engine answers at once ({error})") from error


async def _ask(
    client: httpx.AsyncClient, model: str, text: str, number: int, *, tokens: int = SWEEP_OUTPUT_TOKENS
) -> Timings:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{number}: {text}"}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,  # an answer of one token has no decode speed
        "cache_salt": f"sweep-{number}-{len(text)}",
    }
    response = await client.post("/chat/completions", json=body)
    if response.is_error:
        raise StateError(f"{response.url} answered {response.status_code}: {response.text[:300]}")
    try:
        return msgspec.json.decode(response.content, type=TimedAnswer).x_breakeven
    except msgspec.DecodeError as error:
        raise StateError(
            f"{response.url} does not report its timings as the bundled engine does ({error}); another server is "
            "measured by `breakeven bench backend NAME`, for its block of breakeven.yaml"
        ) from error
