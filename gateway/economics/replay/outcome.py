"""Estimates what a model that was not asked would have returned: lengths, GPU-seconds, latency, by learned ratios."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.economics.replay.log import LoggedRequest, Served
from gateway.routing.snapshot import ON_DEMAND, CacheWrites

LEAST_COMPARED: Final = 20
"""Requests needed before a ratio of lengths is trusted."""


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """How a model answers: tokeniser and verbosity relative to a reference model, and speed.

    Speeds of None are unknown and contribute no time. GPU-seconds are zero for hosted models. `cache_writes` says how
    much of a prompt is charged as written to its cache, `asked_tier` which service tier its block always asks for.
    """

    input_ratio: float = 1.0
    output_ratio: float = 1.0
    base_seconds: float = 0.0
    prefill_tokens_per_second: float | None = None
    step_seconds: float = 0.0
    gpu_seconds_per_fresh_input_token: float = 0.0
    gpu_seconds_per_output_token: float = 0.0
    cache_writes: CacheWrites = ON_DEMAND
    asked_tier: str | None = None

    def served_instead(self, logged: LoggedRequest, of: "ModelOutcome", cached_tokens: int) -> Served:
        """The logged request as this model would have served it, with `cached_tokens` of its prompt cached."""
        before = logged.served
        input_tokens = round(before.input_tokens * self.input_ratio / of.input_ratio)
        output_tokens = round(before.output_tokens * self.output_ratio / of.output_ratio)
        limit = logged.facts.max_output_tokens
        if limit is not None and output_tokens > limit:
            output_tokens = max(limit, before.output_tokens)
        cached = min(cached_tokens, input_tokens)
        of_caller = None if before.service_tier == of.asked_tier else before.service_tier
        return before._replace(
            input_tokens=input_tokens,
            cached_input_tokens=cached,
            cache_write_tokens=self._written(logged, of, input_tokens, cached),
            output_tokens=output_tokens,
            gpu_seconds=self.gpu_seconds(input_tokens, cached, output_tokens),
            service_tier=self.asked_tier or of_caller,
        )

    def _written(self, logged: LoggedRequest, of: "ModelOutcome", input_tokens: int, cached: int) -> int:
        """Tokens written to the prompt cache: all that the provider writes by itself, what the gateway would mark, or
        the share that the caller's marks covered in the log. A logged model that writes by itself shows no such
        share."""
        before, facts = logged.served, logged.facts
        share = 0.0
        if self.cache_writes.by == "provider":
            share = 1.0
        elif self.cache_writes.by == "gateway" and facts.repeated_tokens:
            share = facts.repeated_tokens / facts.input_tokens
        elif before.cache_write_tokens and of.cache_writes.by == "caller":
            share = (before.cached_input_tokens + before.cache_write_tokens) / before.input_tokens
        kept = round(input_tokens * share)
        return max(0, kept - cached) if kept >= self.cache_writes.least_tokens else 0

    def gpu_seconds(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        fresh = input_tokens - cached_tokens
        return fresh * self.gpu_seconds_per_fresh_input_token + output_tokens * self.gpu_seconds_per_output_token

    def time_to_first_token_seconds(self, served: Served) -> float:
        """Excludes any wait for a slot."""
        if self.prefill_tokens_per_second is None:
            return self.base_seconds
        fresh = served.input_tokens - served.cached_input_tokens
        return self.base_seconds + fresh / self.prefill_tokens_per_second

    def residence_seconds(self, served: Served) -> float:
        """How long the request holds a slot."""
        return self.time_to_first_token_seconds(served) + served.output_tokens * self.step_seconds


class ShadowPair(NamedTuple):
    """Token sums of requests that two models both answered in full; callers saw the reference's answers."""

    model: str
    reference: str
    requests: int
    reference_input_tokens: int
    reference_output_tokens: int
    input_tokens: int
    output_tokens: int

    def reversed(self) -> "ShadowPair":
        """The pair with roles swapped: whose answer callers saw does not change what each model says."""
        return ShadowPair(self.reference, self.model, self.requests, *self[5:], *self[3:5])


class Lengths(NamedTuple):
    """`ratios` are (input, output) of each model against `reference`, from `requests` that both answered."""

    reference: str
    ratios: Mapping[str, tuple[float, float]]
    requests: int


def learn_lengths(pairs: Iterable[ShadowPair]) -> Lengths | None:
    """Ratios of sums, which long answers dominate just as they dominate the bill. The reference is the model with the
    most compared requests; models compared with it fewer than LEAST_COMPARED times are left out. None if none is left.
    """
    both_ways = [one for pair in pairs for one in (pair, pair.reversed())]
    compared: dict[str, int] = defaultdict(int)
    for pair in both_ways:
        compared[pair.reference] += pair.requests
    if not compared:
        return None
    reference = min(compared, key=lambda name: (-compared[name], name))
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for pair in both_ways:
        if pair.reference == reference != pair.model:
            sums[pair.model] = [held + more for held, more in zip(sums[pair.model], pair[2:], strict=True)]
    enough = {model: row for model, row in sums.items() if row[0] >= LEAST_COMPARED and all(row)}
    ratios = {model: (row[3] / row[1], row[4] / row[2]) for model, row in enough.items()}
    return Lengths(reference, ratios, sum(row[0] for row in enough.values())) if ratios else None
