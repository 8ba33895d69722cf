"""What reports ask of the books: sums by these dimensions, and who gives them. Names no technology."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

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
    "hour",
    "day",
    "week",
    "month",
    "quarter",
]
TIMES: Final = ("hour", "day", "week", "month", "quarter")


@dataclass(frozen=True, slots=True)
class SumsQuery:
    """What to sum: requests accepted in [since_us, until_us), by these dimensions, where these columns are so.

    `hour` is a UTC hour; days, weeks (ISO 8601, from Monday), months and quarters are those of `time_zone`. A request
    with several tags counts in each `tag`; `tags` is the JSON array of all it has, so that each request counts once.
    `filters` maps a dimension that is not a time to its value; None matches requests that have none.
    Corrections that were booked at `as_of_us` or later are left out: what a closed month came to when it was closed.
    `most_groups` is how many somebody can use: none are held beyond. Of `money_alone` only requests, those without a
    price, and money are summed: less is read, and the other figures are 0.
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
    """Percentiles within 2 %, of those requests that have the figure; None where none has."""

    time_to_first_token_p50_seconds: float | None
    time_to_first_token_p95_seconds: float | None
    time_to_first_token_p99_seconds: float | None
    decode_tokens_per_second_p50: float | None
    decode_tokens_per_second_p5: float | None


@dataclass(frozen=True, slots=True)
class Sums:
    """One group. `group` maps each dimension asked for to its value: hours and days are ISO 8601 local times.

    Money of token classes and list price is of priced requests only: `unpriced_requests` are in none of it. The
    lower bound covers every request, the upper all but `unbounded_requests`. Corrections are in `adjustment_pico_usd`
    alone, and there are `adjusted_requests` of them; `priced_later_requests` of the unpriced ones have a price by one.
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
        """What was booked at admission's prices, without corrections."""
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
        """What it is after all corrections."""
        return self.cost_pico_usd + self.adjustment_pico_usd

    @property
    def is_wholly_unpriced(self) -> bool:
        """Of none of these a price is known, by a correction either: their tokens divide no sum of money."""
        return self.was_wholly_unpriced and not self.priced_later_requests

    @property
    def was_wholly_unpriced(self) -> bool:
        """None of these had a known price when booked: a correction gave them a sum, but none of any token class."""
        return bool(self.unpriced_requests) and self.unpriced_requests == self.requests

    @property
    def still_unpriced_requests(self) -> int:
        """Of these no price is known to this day."""
        return max(0, self.unpriced_requests - self.priced_later_requests)

    def priced(self, count: int, *, as_booked: bool = False) -> int:
        """Of a count of all these requests, what is of those whose cost is known, by now or `as_booked`: where it is
        known of some alone, one request is taken to be like another."""
        unknown = self.unpriced_requests if as_booked else self.still_unpriced_requests
        return count - count * unknown // self.requests if self.requests else count

    @property
    def gpu_seconds(self) -> float:
        return self.gpu_us / 1e6


class RentStore(Protocol):
    """What the deployment's GPUs have cost by the hour."""

    async def rents(self) -> Sequence[GpuRent]:
        """By backend and time; nothing before a gateway was first started."""
        ...

    async def keep(self, present: Sequence[GpuRent], hour: int) -> None:
        """From this UTC hour since the epoch on these are in force, and no others.

        What was dated later by a clock that was ahead begins now. Where the books show that this clock is behind,
        nothing changes.
        """
        ...


class ReportStore(Protocol):
    """Sums from the hourly rollups."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        """One row per group, in the order of the groups' values. Raises TooManyGroups, and ValueError for an unknown
        time zone."""
        ...

    async def hourly_traffic(
        self, since_us: int, until_us: int, *, of_all_kinds: bool = False
    ) -> Sequence[HourlyTraffic]:
        """By hour and model, in that order; whole hours only. What a chat model could serve for somebody: shadow calls
        are nobody's traffic and no chat model embeds, so both are only in that `of_all_kinds`."""
        ...

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        """What people call these keys, by their ids; revoked ones too. Names need not differ."""
        ...

    async def first_and_last_us(self) -> tuple[int, int] | None:
        """Start of the first and end of the last hour with a request; None without any."""
        ...


class BookStore(ReportStore, Protocol):
    """A ReportStore that reads the same rows once for several questions."""

    async def sums_together(self, queries: Sequence[SumsQuery]) -> Sequence[Sequence[Sums]]:
        """As `sums` of each, at one moment of the books. All are of one period and time zone, with the same filters."""
        ...
