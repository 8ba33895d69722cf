"""A month of made-up traffic: who asks what when, decided by the real router and priced by the real catalogue. Pure.

Nothing of it happened: every entry is marked simulated and carries the tag `demo`.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from backends.usage import Usage
from gateway.ledger.entry import Attempt, Cost, Entry, Facts, Intent, Status
from gateway.pricing.price import price, price_compute
from gateway.routing.decide import Choice, decide
from gateway.routing.plans import SIMULATE_TAG
from gateway.routing.snapshot import Candidate, RequestFacts, Snapshot

DAYS = 30
TAGS = ("demo", SIMULATE_TAG)
OUTAGE_DAY, OUTAGE_HOURS = 12, range(13, 17)
LOCAL_SLOTS = 4
LONGEST_INPUT = 7000  # fits every window of the demonstration
OUTAGE_ERROR = "UpstreamUnavailable"


@dataclass(frozen=True, slots=True)
class Team:
    """One app: its share of the traffic and the prompts it sends. Tokens are medians."""

    key_id: str
    team: str | None
    project: str | None
    share: float
    difficulty: float
    input_tokens: int
    output_tokens: int
    cached_share: float
    is_private: bool = False


SnapshotAt = Callable[[int], Snapshot]


def make_month(
    teams: Sequence[Team],
    snapshot_at: SnapshotAt,
    quality: Mapping[str, float],
    *,
    end: datetime,
    requests: int,
) -> Iterator[Entry]:
    """Entries in time order over the 30 days before `end`, which is on a whole hour. About `requests` of them."""
    dice = random.Random(7)
    start = end - timedelta(days=DAYS)
    weights = hourly_loads(start)
    total = sum(weights)
    for hour, weight in enumerate(weights):
        opens = start + timedelta(hours=hour)
        offsets = sorted(dice.random() * 3_600_000_000 for _ in range(_poisson(dice, requests * weight / total)))
        for offset in offsets:
            at_us = round(opens.timestamp()) * 1_000_000 + int(offset)
            is_outage = hour // 24 == OUTAGE_DAY and opens.hour in OUTAGE_HOURS
            team = dice.choices(teams, [one.share for one in teams])[0]
            yield _entry(dice, team, snapshot_at(at_us), quality, at_us, weight, is_outage=is_outage)


def hourly_loads(start: datetime) -> list[float]:
    """Office hours over a night-time floor, weekends at a third, growing by a quarter over the month."""
    return [_load(start + timedelta(hours=hour)) * (1 + 0.25 * hour / (24 * DAYS)) for hour in range(24 * DAYS)]


def _load(at: datetime) -> float:
    office = math.exp(-(((at.hour - 13.5) / 4.2) ** 2))
    return (0.12 + office) * (0.34 if at.weekday() >= 5 else 1.0)


def _poisson(dice: random.Random, mean: float) -> int:
    """Rounded normal above 30, where the two hardly differ."""
    if mean > 30:
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), dice.random(), 0
    while product > limit:
        product *= dice.random()
        count += 1
    return count


def _entry(
    dice: random.Random,
    team: Team,
    snapshot: Snapshot,
    quality: Mapping[str, float],
    at_us: int,
    load: float,
    *,
    is_outage: bool,
) -> Entry:
    difficulty = min(0.98, max(0.02, dice.gauss(team.difficulty, 0.18)))
    input_tokens = min(LONGEST_INPUT, max(8, round(team.input_tokens * dice.lognormvariate(0, 0.6))))
    output_tokens = max(2, round(team.output_tokens * dice.lognormvariate(0, 0.5)))
    waiting = dice.random() < 0.25 * load
    facts = Facts(
        input_tokens=input_tokens,
        max_output_tokens=None,
        difficulty=round(difficulty, 4),
        uncertainty=round(dice.uniform(0.03, 0.12), 4),
        quality={name: round(min(0.99, max(0.02, q + 0.5 * (0.5 - difficulty))), 4) for name, q in quality.items()},
        output_tokens={name: float(team.output_tokens) for name in snapshot.candidates},
        backend_state={
            name: (0, 2.0) if waiting else (dice.randint(1, LOCAL_SLOTS), 0.0)
            for name, one in snapshot.candidates.items()
            if one.is_local
        },
        draw=dice.random(),
    )
    tags = tuple(sorted({*TAGS, "private"} if team.is_private else TAGS))
    request = RequestFacts("auto", "chat.completions", team.key_id, team.team, team.project, tags, None, facts)
    choice = decide(request, snapshot)
    answered, attempts, status = _answer(choice, is_outage=is_outage)
    if status is Status.completed:
        status = dice.choices([Status.completed, Status.cancelled, Status.partial], [0.982, 0.013, 0.005])[0]
    if status is Status.failed:
        usage = Usage()
    else:
        cached = round(input_tokens * team.cached_share) if not answered.is_local and dice.random() < 0.6 else 0
        spoken = output_tokens if status is Status.completed else max(1, round(output_tokens * dice.random()))
        usage = Usage(input_tokens=input_tokens, cached_input_tokens=cached, output_tokens=spoken)
    return _settled(dice, request, choice, answered, attempts, status, usage, at_us)


def _answer(choice: Choice, *, is_outage: bool) -> tuple[Candidate, tuple[Attempt, ...], Status]:
    """In the outage hosted models fail at once and the next candidate is tried."""
    attempts: list[Attempt] = []
    for candidate in choice.order:
        fails = is_outage and not candidate.is_local
        outcome = OUTAGE_ERROR if fails else "answered"
        attempts.append(
            Attempt(
                len(attempts) + 1, candidate.name, candidate.backend, outcome, 0.12 * len(attempts), 0.12,
                http_status=503 if fails else 200,
            )
        )  # fmt: skip
        if not fails:
            return candidate, tuple(attempts), Status.completed
    return choice.order[-1], tuple(attempts), Status.failed


def _settled(
    dice: random.Random,
    request: RequestFacts,
    choice: Choice,
    answered: Candidate,
    attempts: tuple[Attempt, ...],
    status: Status,
    usage: Usage,
    at_us: int,
) -> Entry:
    is_failed = status is Status.failed
    gpu_seconds, cost = _cost(answered, usage)
    queue = dice.expovariate(4.0) if answered.is_local and not is_failed else None
    first_token, pace = _speed(dice, answered, usage, queue or 0.0)
    intent = _intended(_request_id(dice, at_us), at_us, request, choice)
    total = cost.total_pico_usd if cost is not None else None
    return Entry(
        intent=intent,
        status=status,
        model=answered.name,
        backend=answered.backend,
        provider=answered.provider,
        upstream_model=answered.upstream_model,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=usage.output_tokens,
        reasoning_tokens=0,
        is_usage_estimated=False,
        is_simulated=True,
        service_tier=None,
        cost=cost,
        cost_lower_pico_usd=total,
        cost_upper_pico_usd=total,
        gpu_seconds=gpu_seconds,
        queue_seconds=None if queue is None else round(queue, 6),
        time_to_first_token_seconds=None if is_failed else round(first_token, 6),
        prefill_tokens_per_second=None,
        decode_tokens_per_second=None if is_failed or usage.output_tokens < 2 else round(pace, 3),
        total_seconds=round(0.3 if is_failed else first_token + usage.output_tokens / pace, 6),
        finish_reason="stop" if status is Status.completed else None,
        http_status=503 if is_failed else 200,
        error=OUTAGE_ERROR if is_failed else None,
        attempts=attempts if is_failed else _until_first_token(attempts, first_token),
    )


def _until_first_token(attempts: tuple[Attempt, ...], first_token: float) -> tuple[Attempt, ...]:
    """The last attempt answered, and lasted until its first token."""
    *failed, answered = attempts
    lasted = max(0.0, round(first_token - answered.started_after_seconds, 6))
    return (*failed, msgspec.structs.replace(answered, lasted_seconds=lasted))


def _intended(request_id: str, at_us: int, request: RequestFacts, choice: Choice) -> Intent:
    first = choice.order[0]
    return Intent(
        request_id=request_id,
        accepted_at_us=at_us,
        key_id=request.key_id,
        team=request.team,
        project=request.project,
        tags=request.tags,
        operation=request.operation,
        requested_model=request.requested_model,
        is_stream=True,
        decision=choice.decision,
        backend=first.backend,
        provider=first.provider,
        upstream_model=first.upstream_model,
        cost_bound_pico_usd=None,
    )


def _cost(answered: Candidate, usage: Usage) -> tuple[float, Cost | None]:
    if answered.speed is not None:
        speed = answered.speed
        prefill = usage.input_tokens / speed.prefill_tokens_per_second
        seconds = round(prefill + usage.output_tokens * speed.decode_seconds_per_token, 6)
        return seconds, price_compute(seconds, speed.gpu_hour_pico_usd)
    if usage == Usage():
        return 0.0, Cost()
    return 0.0, price(usage, answered.prices) if answered.prices is not None else None


def _speed(dice: random.Random, answered: Candidate, usage: Usage, queue: float) -> tuple[float, float]:
    """Seconds to the first token and tokens per second after it."""
    if answered.speed is not None:
        prefill = usage.input_tokens / answered.speed.prefill_tokens_per_second
        return queue + prefill, dice.uniform(0.8, 1.2) / answered.speed.step_seconds
    return dice.lognormvariate(-0.8, 0.4), dice.uniform(45, 130)


def _request_id(dice: random.Random, at_us: int) -> str:
    """A UUIDv7 of the made-up time."""
    value = at_us // 1000 << 80 | 0x7 << 76 | dice.getrandbits(12) << 64 | 0b10 << 62 | dice.getrandbits(62)
    return f"{value:032x}"
