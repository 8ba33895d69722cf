"""Measures the throughput curve of a server that reports no timings, by its streams. Knows no file and no money."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple
from uuid import uuid4

from backends.errors import BackendError, RateLimited
from backends.protocol import Backend, Call
from backends.usage import Usage
from gateway.composition.engine_monitor import SWEEP_TEXT
from gateway.config.engine_curve import CurveFile
from gateway.errors import StateError

PREFILLS = 3
PREFILL_TEXT = SWEEP_TEXT * 5
"""About 1,000 tokens: with a short prompt the way there and back would be most of the time to its first token."""
DECODE_TEXT = "Count slowly from one to a thousand, in words."
DECODED_TOKENS = 128


class _Streamed(NamedTuple):
    """One answer: when it was asked for, and when its first and last output came. `later_share` is the part of its text
    that came after the first output: that may hold many tokens (vLLM's `--stream-interval`), decoded before it came."""

    asked: float
    first: float
    last: float
    later_share: float
    usage: Usage

    @property
    def prefill_tokens_per_second(self) -> float:
        return (self.usage.input_tokens - self.usage.cached_input_tokens) / (self.first - self.asked)

    @property
    def decode_tokens_per_second(self) -> float:
        return self.usage.output_tokens * self.later_share / (self.last - self.first)


async def measure_backend(
    backend: Backend, upstream_model: str, *, sweep: Sequence[int], progress: Callable[[str], None]
) -> CurveFile:
    """A short sweep against a running server: real requests, none of which its prompt cache knows. What the network
    takes counts as prefill, so that is never too fast. Raises StateError."""

    async def ask(text: str, tokens: int = DECODED_TOKENS) -> _Streamed:
        try:
            return await _ask(backend, upstream_model, text, tokens)
        except RateLimited as error:
            raise StateError(
                f"{error.message}: it takes no more requests at once. Choose a lower --concurrency, and let nothing "
                "else ask it meanwhile"
            ) from error
        except BackendError as error:
            raise StateError(f"{error.message}; `breakeven doctor --ask` says what is wrong") from error

    await ask("warm-up")
    progress("measuring prefill")
    prefills = [await ask(PREFILL_TEXT, 1) for _ in range(PREFILLS)]
    points: list[tuple[int, float]] = []
    for concurrency in sweep:
        progress(f"measuring decode at concurrency {concurrency}")
        answers = await asyncio.gather(*(ask(DECODE_TEXT) for _ in range(concurrency)))
        if min(one.last - one.first for one in answers) <= 0:
            raise StateError(
                f"{upstream_model} at {backend.name} sent an answer in one piece: its speed cannot be seen"
            )
        if max(one.first for one in answers) >= min(one.last for one in answers):
            raise StateError(
                f"{backend.name} did not answer {concurrency} requests at once: some waited for others to end. Choose "
                "a lower --concurrency, such as vLLM's --max-num-seqs"
            )
        points.append((concurrency, round(sum(one.decode_tokens_per_second for one in answers), 1)))
    return CurveFile(upstream_model, round(max(one.prefill_tokens_per_second for one in prefills), 1), points)


async def _ask(backend: Backend, upstream_model: str, text: str, tokens: int) -> _Streamed:
    salt = uuid4().hex  # also before the text, for servers that know no salt
    body = {
        "model": upstream_model,
        "messages": [{"role": "user", "content": f"{salt}: {text}"}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    call = Call("chat.completions", upstream_model, json.dumps(body).encode(), True, salt, cache_salt=salt)
    now = asyncio.get_running_loop().time
    asked, came, usage = now(), list[tuple[float, int]](), None
    async with aclosing(await backend.open(call)) as reply:
        async for chunk in reply:
            if chunk.output_characters:
                came.append((now(), chunk.output_characters))
            usage = chunk.usage or usage
    if usage is None:
        raise StateError(f"{backend.name} does not say in its streams how many tokens it sent (`usage`)")
    if not came:
        raise StateError(f"{upstream_model} at {backend.name} answered nothing: its speed cannot be seen")
    (first, at_first), (last, _) = came[0], came[-1]
    return _Streamed(asked, first, last, 1 - at_first / sum(characters for _, characters in came), usage)
