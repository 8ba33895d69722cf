"""CPU cost of requests to an upstream: HTTP clients side by side, ours among them, and our adapter on top of it.

    python -m benchmarks.upstream_clients --json [--requests 400] [--rounds 3]

Every client posts the same body, 32 at a time, to a scripted provider in its own process. CPU time is this process's
(threads included), per request, the least of the interleaved rounds. pyreqwest and httpx take part if installed. The
bar is a ratio within the run: our adapter, which also reads, meters and closes, against bare aiohttp.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import distributions

import aiohttp

from backends.http.http1_client import Http1Client
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Timeouts
from benchmarks.report import Bar, build_report, options, publish

Send = Callable[[bytes], Awaitable[int]]
CONCURRENCY = 32
EVENTS = 50
MESSAGES = [{"role": "user", "content": "word " * 300}]
PLAIN = json.dumps({"model": "m", "messages": MESSAGES}).encode()
STREAM = json.dumps({"model": "m", "messages": MESSAGES, "stream": True}).encode()
HEADERS = {"content-type": "application/json"}


@asynccontextmanager
async def through_aiohttp(base_url: str) -> AsyncGenerator[Send]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send(body: bytes) -> int:
            size = 0
            async with session.post(f"{base_url}/chat/completions", data=body, headers=HEADERS) as response:
                while piece := await response.content.readany():
                    size += len(piece)
            return size

        yield send


@asynccontextmanager
async def through_httpx(base_url: str) -> AsyncGenerator[Send]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=CONCURRENCY)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def send(body: bytes) -> int:
            url = f"{base_url}/chat/completions"
            async with client.stream("POST", url, content=body, headers=HEADERS) as response:
                return sum([len(piece) async for piece in response.aiter_raw()])

        yield send


@asynccontextmanager
async def through_pyreqwest(base_url: str) -> AsyncGenerator[Send]:
    from pyreqwest.client import ClientBuilder  # pyright: ignore[reportMissingImports]

    async with ClientBuilder().tcp_nodelay(True).build() as client:

        async def send(body: bytes) -> int:
            request = client.post(f"{base_url}/chat/completions").headers(HEADERS).body_bytes(body)
            size = 0
            async with request.build_streamed() as response:
                while piece := await response.body_reader.read_chunk():
                    size += len(piece)
            return size

        yield send


@asynccontextmanager
async def through_our_client(base_url: str) -> AsyncGenerator[Send]:
    client = Http1Client("b")

    async def send(body: bytes) -> int:
        size = 0
        response = await client.send("POST", f"{base_url}/chat/completions", HEADERS, body, timeouts=Timeouts())
        while piece := await response.read():
            size += len(piece)
        return size

    yield send
    await client.aclose()


@asynccontextmanager
async def through_our_adapter(base_url: str) -> AsyncGenerator[Send]:
    backend = OpenAICompatibleBackend("b", base_url, None)

    async def send(body: bytes) -> int:
        size = 0
        reply = await backend.open(Call("chat.completions", "m", body, body is STREAM, "r-1"))
        async for chunk in reply:
            size += len(chunk.payload)
        await reply.aclose()
        return size

    yield send
    await backend.aclose()


def clients() -> Mapping[str, Callable[[str], AbstractAsyncContextManager[Send]]]:
    optional = {"pyreqwest": through_pyreqwest, "httpx": through_httpx}
    present = {distribution.name.lower() for distribution in distributions()}
    installed = {name: client for name, client in optional.items() if name in present}
    ours = {"our adapter": through_our_adapter, "our client": through_our_client}
    return ours | {"aiohttp": through_aiohttp} | installed


async def cpu_microseconds(send: Send, body: bytes, requests: int) -> float:
    """CPU of this process per request, `CONCURRENCY` at a time."""
    left = iter(range(requests))

    async def worker() -> None:
        for _ in left:
            if not await send(body):
                raise RuntimeError("an answer came empty")

    await send(body)
    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return (time.process_time() - started) / requests * 1e6


async def measure(base_url: str, requests: int, rounds: int) -> dict[str, dict[str, float]]:
    least: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, client in clients().items():
            async with client(base_url) as send:
                for what, body in (("request", PLAIN), ("stream", STREAM)):
                    cost = await cpu_microseconds(send, body, requests if what == "request" else requests // 4)
                    mine = least.setdefault(name, {})
                    mine[what] = round(min(cost, mine.get(what, cost)), 1)
    return least


def report(costs: dict[str, dict[str, float]]) -> dict[str, object]:
    results = {"cpu_microseconds": costs, "events_per_stream": EVENTS, "concurrency": CONCURRENCY}
    ratios = {what: round(costs["our adapter"][what] / costs["aiohttp"][what], 2) for what in ("request", "stream")}
    named = [Bar(f"our adapter's CPU per {what} / bare aiohttp's", ratios[what], 1.0, "most") for what in ratios]
    return build_report("upstream_clients", results, named)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "tests.scripted_provider", "--pieces", str(EVENTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout
        try:
            base_url = provider.stdout.readline().strip()
            costs = asyncio.run(measure(base_url, arguments.requests, arguments.rounds))
        finally:
            provider.terminate()
    lines = (
        f"{name:12} {cost['request']:8.1f} us per request {cost['stream']:8.1f} us per {EVENTS}-event stream"
        for name, cost in costs.items()
    )
    publish(report(costs), arguments, "\n".join(lines))


if __name__ == "__main__":
    main()
