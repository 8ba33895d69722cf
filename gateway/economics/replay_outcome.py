"""What would have come back from a model that was not asked: lengths, GPU-seconds and waiting, from learned ratios."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.economics.errors import NotMeasured
from gateway.economics.replay_log import LoggedRequest, Served


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """How a model answers, relative to one reference model: its tokeniser, its wordiness, its speed.

    Speeds of None are unknown and contribute no time. GPU-seconds are zero for hosted models.
    """

    input_ratio: float = 1.0
    output_ratio: float = 1.0
    base_seconds: float = 0.0
    prefill_tokens_per_second: float | None = None
    step_seconds: float = 0.0
    gpu_seconds_per_fresh_input_token: float = 0.0
    gpu_seconds_per_output_token: float = 0.0

    def served_instead(self, logged: LoggedRequest, of: "ModelOutcome", cached_tokens: int) -> Served:
        """The logged request as this model would have served it, `cached_tokens` of its prompt being warm."""
        before = logged.served
        input_tokens = round(before.input_tokens * self.input_ratio / of.input_ratio)
        output_tokens = round(before.output_tokens * self.output_ratio / of.output_ratio)
        limit = logged.facts.max_output_tokens
        if limit is not None and output_tokens > limit:
            output_tokens = max(limit, before.output_tokens)
        cached = min(cached_tokens, input_tokens)
        return Served(
            before.at_us, input_tokens, cached, 0, output_tokens, self.gpu_seconds(input_tokens, cached, output_tokens)
        )

    def gpu_seconds(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        fresh = input_tokens - cached_tokens
        return fresh * self.gpu_seconds_per_fresh_input_token + output_tokens * self.gpu_seconds_per_output_token

    def time_to_first_token_seconds(self, served: Served) -> float:
        """Without any wait for a slot."""
        if self.prefill_tokens_per_second is None:
            return self.base_seconds
        fresh = served.input_tokens - served.cached_input_tokens
        return self.base_seconds + fresh / self.prefill_tokens_per_second

    def residence_seconds(self, served: Served) -> float:
        """How long a slot is held."""
        return self.time_to_first_token_seconds(served) + served.output_tokens * self.step_seconds


class ShadowPair(NamedTuple):
    """Two models answered the same request; the caller saw one of them."""

    model: str
    reference_input_tokens: int
    reference_output_tokens: int
    input_tokens: int
    output_tokens: int


def learn_ratios(pairs: Iterable[ShadowPair]) -> Mapping[str, tuple[float, float]]:
    """Per model: (input ratio, output ratio) against the reference, as ratios of sums, which long answers dominate
    just as they dominate the bill. Raises NotMeasured for a model whose reference never said anything."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for pair in pairs:
        for index, tokens in enumerate(pair[1:]):
            sums[pair.model][index] += tokens
    for model, (reference_in, reference_out, _, _) in sums.items():
        if reference_in == 0 or reference_out == 0:
            raise NotMeasured(f"no shadow pair of {model} has input and output tokens")
    return {model: (row[2] / row[0], row[3] / row[1]) for model, row in sums.items()}
