"""A load generator as cheap as the mock: a closed loop of N connections over bare asyncio.

    python -m benchmarks.gateway.client URL --key K --model mock-16x0 --connections 8 --requests 2000 [--stream]

Prints one JSON object. A chunk is recognised by the monotonic time that the mock wrote into it.
"""

import argparse
import asyncio
import json
import re
import socket
import statistics
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

WRITTEN_AT = re.compile(rb'"content":\s*" (\d{9,})"')
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
KEPT_BYTES = 1024
TEXT = "Summarise this report on the harvest in one sentence: the wheat stood well until June. " * 4


@dataclass(slots=True)
class Tally:
    """Measurements of one run, in seconds."""

    left: int
    connections: int = 0
    latencies: list[float] = field(default_factory=list[float])
    first_chunks: list[float] = field(default_factory=list[float])
    chunk_ages: "array[float]" = field(default_factory=lambda: array("d"))
    steady_chunk_ages: "array[float]" = field(default_factory=lambda: array("d"))
    errors: int = 0
    first_error: str = ""

    def chunk(self, age: float) -> None:
        self.chunk_ages.append(age)
        if len(self.first_chunks) >= self.connections and not self.latencies:  # all streams are open, none has ended
            self.steady_chunk_ages.append(age)


class Connection(asyncio.Protocol):
    """Sends a request, reads the answer to its end, and repeats until the tally has enough."""

    def __init__(self, request: bytes, tally: Tally, done: asyncio.Future[None], *, is_stream: bool) -> None:
        self._request, self._tally, self._done, self._is_stream = request, tally, done, is_stream
        self._transport: asyncio.Transport
        self._answer = bytearray()
        self._asked_at = 0.0
        self._scanned = 0
        self._has_chunk = False
        self._is_good = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._fail(f"connection lost: {exc}")
            self._done.set_result(None)

    def _ask(self) -> None:
        if self._tally.left <= 0:
            self._done.set_result(None)
            self._transport.close()
            return
        self._tally.left -= 1
        self._answer.clear()
        self._scanned, self._has_chunk, self._is_good = 0, False, False
        self._asked_at = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._answer += data
        self._is_good = self._is_good or self._answer.startswith(b"HTTP/1.1 200")
        if self._is_stream:
            self._read_chunks(now)
        if self._is_whole():
            self._tally.latencies.append(now - self._asked_at)
            if not self._is_good or (self._is_stream and b"[DONE]" not in self._answer):
                self._fail(self._answer[:500].decode("utf-8", "replace"))
            self._ask()
        elif self._is_stream and self._scanned > KEPT_BYTES and self._is_good:
            del self._answer[: self._scanned - KEPT_BYTES]  # a long stream is not kept whole
            self._scanned = KEPT_BYTES

    def _read_chunks(self, now: float) -> None:
        for found in WRITTEN_AT.finditer(self._answer, self._scanned):
            self._scanned = found.end()
            self._tally.chunk(now - int(found[1]) / 1e9)
            if not self._has_chunk:
                self._has_chunk = True
                self._tally.first_chunks.append(now - self._asked_at)

    def _is_whole(self) -> bool:
        if self._is_stream and self._is_good:
            return self._answer.endswith(b"0\r\n\r\n")
        head_end = self._answer.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        length = LENGTH.search(self._answer, 0, head_end)
        if length is not None:
            return len(self._answer) >= head_end + 4 + int(length[1])
        return self._answer.endswith(b"0\r\n\r\n")

    def _fail(self, what: str) -> None:
        self._tally.errors += 1
        self._tally.first_error = self._tally.first_error or what


def build_request(url: str, key: str, model: str, *, is_stream: bool) -> bytes:
    """The request, as bytes, that every connection repeats."""
    parts = urlsplit(url)
    body = {"model": model, "messages": [{"role": "user", "content": TEXT}], "max_tokens": 64}
    if is_stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    content = json.dumps(body).encode()
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def drive(
    url: str, request: bytes, tally: Tally, *, connections: int, ramp_seconds: float, is_stream: bool
) -> float:
    """Wall seconds from the first connection to the last answer. Connections open over `ramp_seconds`."""
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    ends: list[asyncio.Future[None]] = []
    began = time.monotonic()
    for number in range(connections):
        ends.append(done := loop.create_future())
        due = began + ramp_seconds * number / connections
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        await loop.create_connection(
            partial(Connection, request, tally, done, is_stream=is_stream),
            parts.hostname or "127.0.0.1",
            parts.port or 80,
        )
    await asyncio.gather(*ends)
    return time.monotonic() - began


def summary(tally: Tally, seconds: float) -> dict[str, Any]:
    """The JSON object; times are in milliseconds where the name says so, else in seconds."""
    return {
        "requests": len(tally.latencies),
        "seconds": round(seconds, 3),
        "requests_per_second": round(len(tally.latencies) / seconds, 1),
        "errors": tally.errors,
        "first_error": tally.first_error,
        "latency_ms": quantiles(tally.latencies),
        "first_chunk_ms": quantiles(tally.first_chunks),
        "chunk_age_ms": quantiles(tally.chunk_ages),
        "steady_chunk_age_ms": quantiles(tally.steady_chunk_ages),
    }


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p99 and maximum in milliseconds; empty if there are none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    named = {"p50": statistics.median(ordered), "p99": p99, "max": ordered[-1]}
    return {name: round(value * 1000, 3) for name, value in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="ends in /v1")
    parser.add_argument("--key", default="none")
    parser.add_argument("--model", default="mock-16x0")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--ramp-seconds", type=float, default=0.0)
    parser.add_argument("--stream", action="store_true")
    chosen = parser.parse_args()
    request = build_request(chosen.url, chosen.key, chosen.model, is_stream=chosen.stream)
    tally = Tally(chosen.requests, chosen.connections)
    run = drive(
        chosen.url,
        request,
        tally,
        connections=chosen.connections,
        ramp_seconds=chosen.ramp_seconds,
        is_stream=chosen.stream,
    )
    print(json.dumps(summary(tally, uvloop.run(run))))


if __name__ == "__main__":
    main()
