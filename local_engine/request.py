"""The state of one answer: its tokens, how much of them the KV cache holds, and its timings. No torch, no wire
format."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.sampling.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "cancelled", "error"]
SECONDS_A_PRIORITY = 30


def turn_of(arrived: float, priority: int) -> int:
    """Who goes first: the lowest. A request is treated as if it had arrived 30 seconds later for each level of its
    priority, in whole milliseconds.

    So no more important ones overtake it than arrive in that time. All waiting requests age alike, which leaves their
    order as it is: no clock is needed to keep it.
    """
    return int(arrived * 1000) + priority * SECONDS_A_PRIORITY * 1000


class Status(Enum):
    """waiting -> running -> finished; running -> waiting when preempted."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True)
class RequestTimings:
    """Seconds on the engine's monotonic clock; `device_seconds` is this request's share of every step it was in."""

    arrived: float = 0.0
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    device_seconds: float = 0.0
    steps: int = 0
    batched_requests: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """Mutable state of one answer. Invariant: `computed_tokens` <= `length`, and once the prompt is computed only the
    last token is pending.

    `in_flight_tokens` are drawn on the device but not known here yet; `longest` is the length at which the answer ends.
    `prompt_logprobs` cover the prompt's tokens from the second on, as far as computed; empty unless requested.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    priority: int = 0
    cache_salt: str = ""
    arrival_order: int = 0
    token_ids: list[int] = field(init=False)
    in_flight_tokens: int = 0
    longest: int = field(init=False)
    draft_token_ids: list[int] = field(default_factory=list[int])
    computed_tokens: int = 0
    cached_prompt_tokens: int | None = None
    block_ids: list[int] = field(default_factory=list[int])
    block_hashes: list[bytes] = field(default_factory=list[bytes])
    registered_blocks: int = 0
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    preemptions: int = 0
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    timings: RequestTimings = field(default_factory=RequestTimings)

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_token_ids)
        self.longest = self.prompt_tokens + self.params.max_tokens

    @property
    def rank(self) -> tuple[int, int]:
        """Its place among all requests, the lowest first: by turn, then by arrival."""
        return (turn_of(self.timings.arrived, self.priority), self.arrival_order)

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def draws(self) -> bool:
        """Whether there is an answer to draw; otherwise only the prompt is computed."""
        return self.params.max_tokens > 0

    @property
    def skippable_tokens(self) -> int:
        """Tokens that need not be computed if cached: all but the last, whose logits are needed; while prompt
        log-probabilities are missing only those already scored, since the cache contains no logits.
        """
        known = len(self.prompt_logprobs)
        is_scoring = self.params.prompt_logprobs is not None and known < self.prompt_tokens - 1
        return known if is_scoring else len(self.token_ids) - 1

    @property
    def length(self) -> int:
        """Tokens so far, including those in flight."""
        return len(self.token_ids) + self.in_flight_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens drawn and known so far."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        """Tokens drawn so far, oldest first."""
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def pending_tokens(self) -> int:
        """Tokens, including drafts, whose keys and values are not in the cache yet."""
        return self.length + len(self.draft_token_ids) - self.computed_tokens
