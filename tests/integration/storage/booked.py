"""Random entries, and their sums computed independently, by the documentation."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gateway.instants import HOUR_US, moment_of
from gateway.instants import microseconds as us
from gateway.ledger.entry import Attempt, Cost, Entry, PaidTo, Status
from gateway.sums import Dimension
from tests.unit.gateway.ledger.builders import make_entry, make_intent, make_local_entry

PARTS = tuple(f"{name}_pico_usd" for name in ("input", "cached_input", "cache_write", "output", "other", "compute"))

START = datetime(2026, 3, 26, tzinfo=UTC)  # daylight saving time begins on the 29th in Europe


def random_entries(count: int) -> list[Entry]:
    chance = random.Random(7)
    found: list[Entry] = []
    for number in range(count):
        intent = make_intent(
            number,
            accepted_at_us=us(START) + chance.randrange(6 * 86_400_000_000),
            team=chance.choice(("search", "ads", None)),
            key_id=chance.choice(("k1", "k2")),
            tags=chance.choice(((), ("batch",), ("batch", "eu"))),
            end_user=None if number % 5 == 0 else f"user {number % 7}",
        )
        make = chance.choice((make_entry, make_local_entry))
        known = chance.random() < 0.9
        cost = Cost(input_pico_usd=chance.randrange(10**10), output_pico_usd=chance.randrange(10**10), list_pico_usd=9)
        found.append(
            make(
                number,
                intent=intent,
                status=chance.choice((Status.completed, Status.completed, Status.cancelled)),
                cost=cost if known else None,
                cost_lower_pico_usd=cost.total_pico_usd if known else 0,
                cost_upper_pico_usd=cost.total_pico_usd if known else None,
                time_to_first_token_seconds=round(chance.lognormvariate(-1, 1), 6),
                total_seconds=round(chance.lognormvariate(1, 1), 6),
                web_searches=chance.choice((0, 0, 3)),
                file_searches=chance.choice((0, 1)),
                other_tool_calls=chance.choice((0, 2)),
            )
        )
    return found


def group_of(entry: Entry, by: tuple[Dimension, ...], zone: str) -> list[tuple[str | None, ...]]:
    """The group of an entry by the documentation."""
    moment = moment_of(entry.intent.accepted_at_us)
    local = moment.astimezone(ZoneInfo(zone))
    values: dict[str, list[str | None]] = {
        "model": [entry.model],
        "team": [entry.intent.team],
        "key": [entry.intent.key_id],
        "status": [entry.status.value],
        "tag": list(entry.intent.tags) or [None],
        "end_user": [entry.intent.end_user],
        "hour": [moment.strftime("%Y-%m-%dT%H:00Z")],
        "day": [local.strftime("%Y-%m-%d")],
        "week": [f"{local.isocalendar().year}-W{local.isocalendar().week:02}"],
        "month": [local.strftime("%Y-%m")],
        "quarter": [f"{local.year}-Q{1 + (local.month - 1) // 3}"],
    }
    groups: list[tuple[str | None, ...]] = [()]
    for name in by:
        groups = [(*group, value) for group in groups for value in values[name]]
    return groups


PERIODS = [
    (START, START + timedelta(days=7)),
    (START + timedelta(hours=5, minutes=17), START + timedelta(days=3, hours=2, minutes=40, microseconds=1)),
    (START + timedelta(hours=5, minutes=17), START + timedelta(hours=5, minutes=43)),
]


GROUPINGS: list[tuple[Dimension, ...]] = [
    (),
    ("model",),
    ("team", "status"),
    ("tag",),
    ("day", "team"),
    ("week",),
    ("month",),
    ("quarter", "model"),
    ("hour",),
]
TIMED = [by for by in GROUPINGS if {"hour", "day", "week", "month", "quarter"} & set(by)]


BY_END_USER: list[tuple[Dimension, ...]] = [("end_user",), ("end_user", "day", "tag"), ("hour", "end_user")]


def random_entry(chance: random.Random, number: int) -> Entry:
    """An entry of any status, with or without a price, with or without attempts on other bills."""
    intent = make_intent(
        number,
        accepted_at_us=make_intent(0).accepted_at_us + chance.randrange(40 * 24) * HOUR_US + chance.randrange(HOUR_US),
        team=chance.choice(["red", "blue", None]),
        end_user=None if number % 4 == 0 else f"user {number % 3}",
    )
    paid = [random_attempt(chance, place) for place in range(1, chance.randrange(1, 4))]
    parts = {name: chance.randrange(10 ** chance.randrange(16)) for name in PARTS}
    parts["other_pico_usd"] = sum(one.cost_pico_usd or 0 for one in paid)
    cost = Cost(**parts) if chance.random() < 0.9 else None
    total = cost.total_pico_usd if cost else None
    return make_entry(
        number,
        intent=intent,
        status=chance.choice(list(Status)),
        provider=chance.choice(["openai", "local"]),
        input_tokens=chance.randrange(10**9),
        output_tokens=chance.randrange(10**6),
        cost=cost,
        cost_lower_pico_usd=total or 0,
        cost_upper_pico_usd=total,
        attempts=(*paid, Attempt(len(paid) + 1, "mid-hosted", "openai", "answered", 0.0, 1.0, 0, 200)),
    )


def random_attempt(chance: random.Random, place: int) -> Attempt:
    cost = chance.randrange(10**12)
    bill = PaidTo("cheap-company", "small-1", False, 0, cost) if chance.random() < 0.7 else None
    return Attempt(place, "small", "other", "escalated:empty", 0.0, 1.0, cost if bill else 0, 200, bill)
