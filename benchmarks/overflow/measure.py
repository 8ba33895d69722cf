"""The same comparison on this machine: real engine on CPU, real request path, Poisson arrivals, two disciplines.

Loads are the worked example's, relative to the capacity just measured; money is in hours of rent, with the example's
ratio of value to rent. Hosted requests are answered by a script at once: only their price matters.
"""

import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Chunk
from backends.scripted import Outcome, ScriptedBackend, follow
from benchmarks.overflow.example import (
    GPU_SECONDS,
    HOSTED,
    LOADS,
    OWN,
    RESIDENCE_SECONDS,
    USD_PER_HOUR,
    VALUE_USD,
    WAIT_SECONDS,
    build_snapshot,
)
from benchmarks.overflow.waiting_line import erlang_b, largest_arrival_rate
from gateway.access.keys import KeyRecord, KeyRing, hash_key
from gateway.composition.engine_monitor import watch_health
from gateway.errors import ModelsPaused
from gateway.ledger.entry import Checkpoint, Entry, Intent
from gateway.pipeline import Incoming, Pipeline
from gateway.routing.snapshot import Candidate
from gateway.upstreams.load import Upstreams

KEY, PEPPER = "bk-benchmark", b"benchmark"
RELATIVE_LOADS = tuple(load * GPU_SECONDS for load in LOADS)
HOURS_OF_RENT_PER_FULL_HOUR = 3600 * VALUE_USD / GPU_SECONDS / USD_PER_HOUR
"""What an hour of a full engine saves in hosted calls, in hours of its rent."""
WORDS = ("tide", "moon", "water", "earth", "sun", "ship", "wind", "rope", "sail", "mast", "chart", "star", "reef")


class Reader:
    """A caller that reads everything and keeps nothing."""

    is_gone = False

    def outlive(self, seconds: float | None = None) -> None:
        del seconds

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        del status, content_type, headers

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        del payload, chunk, is_last


@dataclass(slots=True)
class Entries:
    """A ledger in memory that is also the observer; it prints failed attempts."""

    settled_entries: list[Entry] = field(default_factory=list[Entry])

    def intend(self, intent: Intent) -> None:
        del intent

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        del checkpoint

    async def settle(self, entry: Entry) -> None:
        self.settled_entries.append(entry)

    def gauges(self) -> Mapping[str, float]:
        return {}

    def settled(self, entry: Entry) -> None:
        del entry

    def unclassified(self) -> None:
        return None

    def attempt_failed(self, candidate: Candidate, error: Exception) -> None:
        del candidate
        print(f"an attempt failed: {error}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Cell:
    """One discipline at one load."""

    served_per_second: float
    hosted_share: float
    p95_first_token_seconds: float


class Rig:
    """The request path in this process, in front of an engine in its own."""

    def __init__(self, url: str, *, output_tokens: int, seed: int) -> None:
        self._dice = random.Random(seed)
        self._output_tokens = output_tokens
        self.books = Entries()
        keys = KeyRing(PEPPER)
        keys.replace({hash_key(PEPPER, KEY): KeyRecord("key-1", "benchmark", "app")})
        self.engine = OpenAICompatibleBackend(OWN, f"{url}/v1", None, health_from="engine")
        self.upstreams = Upstreams()
        self.pipeline = Pipeline(
            keys=keys,
            backends={OWN: self.engine, HOSTED: ScriptedBackend(HOSTED, follow([Outcome()]))},
            upstreams=self.upstreams,
            ledger=self.books,
            observer=self.books,
            snapshot=build_snapshot(),
            classifier=None,
        )

    async def ask(self, model: str) -> None:
        """One streamed answer to a new random prompt."""
        text = " ".join(self._dice.choice(WORDS) for _ in range(48))
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"Tell a story of {text}."}],
            "stream": True,
            "max_tokens": self._output_tokens,
        }
        try:
            await self.pipeline.answer(Incoming("chat.completions", KEY, json.dumps(body).encode()), Reader())
        except ModelsPaused:  # the engine's queue is full, and no wait that it offers is as short as promised
            await self.ask(HOSTED)

    async def capacity(self, slots: int, seconds: float) -> float:
        """Requests per second with every slot always taken, between the first and the last round of answers."""
        ends = time.monotonic() + seconds
        answered: list[float] = []

        async def keep_busy() -> None:
            while time.monotonic() < ends or len(answered) < 3 * slots:
                await self.ask(OWN)
                answered.append(time.monotonic())

        await asyncio.gather(*(keep_busy() for _ in range(slots)))
        steady = sorted(answered)[slots - 1 : -slots]
        return (len(steady) - 1) / (steady[-1] - steady[0])

    async def cell(self, load: float, seconds: float, warm_up: float, own_share: float | None) -> Cell:
        """Poisson arrivals at `load`; `own_share` of them queue at the engine. None: the decision chooses for each."""
        self.books.settled_entries.clear()
        running: set[asyncio.Task[None]] = set()
        begins = at = time.monotonic()
        first_us = self.pipeline.now_us() + round(warm_up * 1e6)
        while at < begins + warm_up + seconds:
            at += self._dice.expovariate(load)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            model = "auto" if own_share is None else OWN if self._dice.random() < own_share else HOSTED
            running.add(task := asyncio.create_task(self.ask(model)))
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
        arrived = [entry for entry in self.books.settled_entries if entry.intent.accepted_at_us >= first_us]
        return _cell(arrived, load)


def _cell(entries: list[Entry], load: float) -> Cell:
    own = [entry for entry in entries if entry.model == OWN]
    first = sorted(entry.time_to_first_token_seconds or 0.0 for entry in own)
    share = len(own) / max(1, len(entries))
    return Cell(load * share, 1 - share, first[int(0.95 * len(first))] if first else 0.0)


@asynccontextmanager
async def engine(slots: int) -> AsyncGenerator[str]:
    """Starts the bundled engine with so many slots; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "local_engine", "serve", "--port", str(port), "--exit-with-parent"]
    command += ["--max-concurrency", str(slots)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    probe = OpenAICompatibleBackend(OWN, f"{url}/v1", None, health_from="engine")
    try:
        while not (await probe.health()).is_healthy:
            if process.returncode is not None:
                raise RuntimeError("the engine ended before it was ready; its messages stand above")
            await asyncio.sleep(0.2)
        yield url
    finally:
        await probe.aclose()
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def measure(*, slots: int, seconds: float, output_tokens: int, seed: int) -> dict[str, object]:
    """Capacity first, then each load under both disciplines, one right after the other."""
    async with engine(slots) as url:
        rig = Rig(url, output_tokens=output_tokens, seed=seed)
        health = asyncio.create_task(watch_health({OWN: rig.engine}, rig.upstreams))
        try:
            await rig.ask(OWN)
            capacity = await rig.capacity(slots, seconds)
            residence = slots / capacity
            bearable = largest_arrival_rate(slots, residence, WAIT_SECONDS * residence / RESIDENCE_SECONDS)
            overflow: list[Cell] = []
            queue: list[Cell] = []
            for relative in RELATIVE_LOADS:
                load = relative * capacity
                print(f"{load:.2f} requests a second, {residence:.1f} s each when full", file=sys.stderr)
                overflow.append(await rig.cell(load, seconds, 2 * residence, None))
                queue.append(await rig.cell(load, seconds, 2 * residence, min(1.0, bearable / load)))
        finally:
            health.cancel()
            await rig.engine.aclose()
    blocked = [erlang_b(slots, relative * slots) for relative in RELATIVE_LOADS]
    bound = saving([min(1.0, relative) for relative in RELATIVE_LOADS])
    expected = saving([relative * (1 - share) for relative, share in zip(RELATIVE_LOADS, blocked, strict=True)])
    expected_queue = saving([min(relative, bearable / capacity) for relative in RELATIVE_LOADS])
    return {
        "slots": slots,
        "requests_per_second_when_full": round(capacity, 3),
        "residence_seconds": round(residence, 3),
        "loads_relative_to_capacity": [round(one, 4) for one in RELATIVE_LOADS],
        "overflow": _shown(overflow, capacity, bound),
        "queue": _shown(queue, capacity, bound),
        "overflow_share_by_erlang_b": round(expected / bound, 4),
        "queue_share_by_erlang_c": round(expected_queue / bound, 4),
    }


def saving(served: list[float]) -> float:
    """The saving of an hour at each load, in hours of rent; `served` are shares of the capacity."""
    return sum(served) * HOURS_OF_RENT_PER_FULL_HOUR - len(served)


def _shown(cells: list[Cell], capacity: float, bound: float) -> dict[str, object]:
    return {
        "share_of_the_fluid_bound": round(saving([cell.served_per_second / capacity for cell in cells]) / bound, 4),
        "hosted_share": [round(cell.hosted_share, 4) for cell in cells],
        "p95_first_token_seconds": [round(cell.p95_first_token_seconds, 3) for cell in cells],
    }
