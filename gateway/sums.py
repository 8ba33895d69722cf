"""The sums that reports read, their dimensions, and the protocols of the stores behind them. Names no technology."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from gateway.economics.rent import GpuRent
from gateway.economics.traffic import HourlyTraffic

Dimension = Literal[
    "model",
    "team",
    "project",
    "key",
    "backend",
    "provider",
    "rule",
    "status",
    "operation",
    "upstream_model",
    "is_simulated",
    "tag",
    "tags",
    "end_user",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
]
TIMES: Final = ("hour", "day", "week", "month", "quarter")


@dataclass(frozen=True, slots=True)
class SumsQuery:
    """What to sum: requests accepted in [since_us, until_us), grouped by `by` and filtered by `filters`.

    `hour` is a UTC hour; days, weeks (ISO 8601, from Monday), months and quarters are those of `time_zone`. A request
    with several tags counts under each `tag`; `tags` is the JSON array of all its tags, so each request counts once.
    With `end_user` the single requests are added up, as the sums kept know none: those that retention has deleted are
    not counted, and there are no latencies.
    `filters` maps a dimension other than time to its value; None matches requests that have none.
    Corrections booked at `as_of_us` or later are left out: that is what a closed month came to when it was closed.
    `most_groups` bounds how many groups are held (TooManyGroups beyond). With `money_alone` only requests, unpriced
    requests, costs and their upper bounds are summed: less is read, and the other figures are 0.
    """

    since_us: int
    until_us: int
    by: tuple[Dimension, ...] = ()
    filters: Mapping[Dimension, str | None] = field(default_factory=dict[Dimension, str | None])
    time_zone: str = "UTC"
    as_of_us: int | None = None
    with_latencies: bool = False
    most_groups: int | None = None
    money_alone: bool = False


class TooManyGroups(ValueError):
    """There are more than `most_groups`."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles within 2 %, over the requests that have the figure; None if none has."""

    time_to_first_token_p50_seconds: float | None
    time_to_first_token_p95_seconds: float | None
    time_to_first_token_p99_seconds: float | None
    decode_tokens_per_second_p50: float | None
    decode_tokens_per_second_p5: float | None


class Sums(msgspec.Struct, frozen=True, gc=False):
    """One group. `group` maps each requested dimension to its value; hours and days are ISO 8601 local times.

    Amounts by token class and list price cover priced requests only, never `unpriced_requests`. The lower bound covers
    every request, the upper bound all but `unbounded_requests`. Corrections appear only in `adjustment_pico_usd`; they
    concern `adjusted_requests`. `priced_later_requests` counts unpriced requests that a correction has priced.
    `aborted_requests` are cancelled or partial ones.
    """

    group: Mapping[Dimension, str | None]
    requests: int = 0
    successful_requests: int = 0
    aborted_requests: int = 0
    simulated_requests: int = 0
    unpriced_requests: int = 0
    estimated_requests: int = 0
    unbounded_requests: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0
    file_searches: int = 0
    other_tool_calls: int = 0
    input_pico_usd: int = 0
    cached_input_pico_usd: int = 0
    cache_write_pico_usd: int = 0
    output_pico_usd: int = 0
    other_pico_usd: int = 0
    compute_pico_usd: int = 0
    list_pico_usd: int = 0
    lower_pico_usd: int = 0
    upper_pico_usd: int = 0
    gpu_us: int = 0
    total_us: int = 0
    adjusted_requests: int = 0
    priced_later_requests: int = 0
    adjustment_pico_usd: int = 0
    latencies: Latencies | None = None

    @property
    def cost_pico_usd(self) -> int:
        """As booked, at the prices of admission, without corrections."""
        return (
            self.input_pico_usd
            + self.cached_input_pico_usd
            + self.cache_write_pico_usd
            + self.output_pico_usd
            + self.other_pico_usd
            + self.compute_pico_usd
        )

    @property
    def corrected_cost_pico_usd(self) -> int:
        """With all corrections."""
        return self.cost_pico_usd + self.adjustment_pico_usd

    @property
    def is_wholly_unpriced(self) -> bool:
        """No request has a known price, not even through a correction: dividing the cost by these tokens is
        meaningless."""
        return self.was_wholly_unpriced and not self.priced_later_requests

    @property
    def was_wholly_unpriced(self) -> bool:
        """No request had a known price when booked; a correction may have added a sum, but not by token class."""
        return bool(self.unpriced_requests) and self.unpriced_requests == self.requests

    @property
    def still_unpriced_requests(self) -> int:
        """Requests whose price is unknown to this day."""
        return max(0, self.unpriced_requests - self.priced_later_requests)

    def priced(self, count: int, *, as_booked: bool = False) -> int:
        """The part of `count`, a figure of all requests, that belongs to requests with a known cost (now, or
        `as_booked`), assuming that all requests are alike."""
        unknown = self.unpriced_requests if as_booked else self.still_unpriced_requests
        return count - count * unknown // self.requests if self.requests else count

    @property
    def gpu_seconds(self) -> float:
        return self.gpu_us / 1e6


class RentStore(Protocol):
    """Hourly rent of the deployment's GPUs."""

    async def rents(self) -> Sequence[GpuRent]:
        """By backend and time; empty until a gateway has been started once."""
        ...

    async def keep(self, present: Sequence[GpuRent], hour: int) -> None:
        """From this UTC hour (since the epoch) on, exactly these rents are in force.

        Rents dated later, by a clock that ran ahead, start now instead. If the ledger shows that this clock is behind,
        nothing changes.
        """
        ...


class ReportStore(Protocol):
    """Sums from the hourly rollups."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        """One row per group, ordered by the groups' values. Raises TooManyGroups, and ValueError for an unknown time
        zone."""
        ...

    async def hourly_traffic(self, since_us: int, until_us: int, *, on_gpus: bool = False) -> Sequence[HourlyTraffic]:
        """By hour and model, in that order; whole hours only. Covers traffic that a chat model could serve for a
        caller; with `on_gpus`, what used GPU time instead, shadow calls, judging and embeddings included."""
        ...

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        """Display names of these keys by id, revoked ones included. Names need not be unique."""
        ...

    async def first_and_last_us(self) -> tuple[int, int] | None:
        """Start of the first and end of the last hour with a request; None if there are none."""
        ...


class BookStore(ReportStore, Protocol):
    """A ReportStore that answers several questions from one reading of the rows."""

    def at_one_moment(self) -> AbstractAsyncContextManager["BookStore"]:
        """This store, as it is now however much is booked meanwhile. It holds a connection to the database: whoever
        waits for another one with it in hand may wait for himself."""
        ...

    async def await_corrections(self, before_us: int) -> None:
        """Waits for those that are being booked, if one of them may be dated before `before_us`: whatever is committed
        later is dated later. Call it before `at_one_moment` if `as_of_us` matters."""
        ...

    async def sums_together(self, queries: Sequence[SumsQuery]) -> Sequence[Sequence[Sums]]:
        """As `sums` of each, from one consistent view. All queries share period, time zone and filters."""
        ...
