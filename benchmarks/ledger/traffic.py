"""Requests of a made-up company, reproducible by seed: 8 teams, 20 keys, 4 models and 3 rules."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from gateway.ledger.entry import Attempt, Cost, Decision, Entry, Facts, Intent, Status

START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def request_number(number: int, accepted_at_us: int) -> bytes:
    """A UUIDv7: sorted by time, unique by the number."""
    return ((accepted_at_us // 1000) << 80 | 7 << 76 | 2 << 62 | number).to_bytes(16, "big")


def make_entry(number: int, chance: random.Random, accepted_at_us: int) -> Entry:
    """One settled request; one in twenty, at random, was cancelled."""
    key = chance.randrange(20)
    hosted = chance.random() < 0.6
    model = chance.choice(("mid-hosted", "big-hosted")) if hosted else chance.choice(("small-local", "mid-local"))
    backend = "openai" if hosted else "local"
    input_tokens, output_tokens = int(chance.expovariate(1 / 500)) + 1, int(chance.expovariate(1 / 300)) + 1
    first_token = chance.lognormvariate(-1.2, 0.6)
    decode = chance.lognormvariate(4, 0.3)
    total = first_token + output_tokens / decode
    cost = Cost(
        input_pico_usd=input_tokens * 150_000 if hosted else 0,
        output_pico_usd=output_tokens * 600_000 if hosted else 0,
        compute_pico_usd=0 if hosted else output_tokens * 520_000,
        list_pico_usd=input_tokens * 150_000 + output_tokens * 600_000,
    )
    facts = Facts(
        input_tokens=input_tokens,
        max_output_tokens=1024,
        difficulty=round(chance.random(), 4),
        uncertainty=round(chance.random() / 5, 4),
        quality={"small-local": round(chance.random(), 4), "mid-hosted": round(chance.random(), 4)},
        output_tokens={"small-local": 200.5, "mid-hosted": 250.25},
        draw=chance.random(),
    )
    decision = Decision(
        rule=chance.choice(("default", "easy-goes-cheap", "private-stays-local")),
        model=model,
        candidates=("small-local", "mid-hosted"),
        expected_cost_pico_usd=cost.total_pico_usd,
        predicted_quality=0.8,
        propensity=1.0,
        rules_version="a" * 16,
        prices_version="b" * 16,
        classifier_version="c" * 16,
        facts=facts,
    )
    intent = Intent(
        request_id=request_number(number, accepted_at_us).hex(),
        accepted_at_us=accepted_at_us,
        key_id=f"key_{key:016x}",
        team=f"team-{key % 8}",
        project=f"project-{key % 12}",
        tags=("batch",) if key % 5 == 0 else (),
        operation="chat.completions",
        requested_model="auto",
        is_stream=True,
        decision=decision,
        backend=backend,
        provider=backend,
        upstream_model=model,
        cost_bound_pico_usd=10**9,
    )
    is_whole = chance.random() > 0.05
    return Entry(
        intent=intent,
        status=Status.completed if is_whole else Status.cancelled,
        model=model,
        backend=backend,
        provider=backend,
        upstream_model=model,
        input_tokens=input_tokens,
        cached_input_tokens=input_tokens // 3,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=output_tokens,
        reasoning_tokens=0,
        is_usage_estimated=False,
        is_simulated=False,
        service_tier="default" if hosted else None,
        cost=cost,
        cost_lower_pico_usd=cost.total_pico_usd,
        cost_upper_pico_usd=cost.total_pico_usd,
        gpu_seconds=0.0 if hosted else output_tokens * 0.0008,
        queue_seconds=None if hosted else 0.002,
        time_to_first_token_seconds=first_token,
        prefill_tokens_per_second=None,
        decode_tokens_per_second=decode,
        total_seconds=total,
        finish_reason="stop" if is_whole else None,
        http_status=200,
        error=None,
        attempts=(Attempt(1, model, backend, "answered", 0.001, total, cost.total_pico_usd, 200),),
    )


def make_entries(count: int) -> list[Entry]:
    """The same entries each time, a millisecond apart."""
    chance = random.Random(1)
    return [make_entry(number, chance, START_US + number * 1000) for number in range(count)]


def renumbered(entries: Sequence[Entry], salt: int) -> list[Entry]:
    """The same entries with other request ids."""
    found: list[Entry] = []
    for entry in entries:
        intent = replace(entry.intent, request_id=f"{int(entry.intent.request_id, 16) ^ salt << 40:032x}")
        found.append(replace(entry, intent=intent))
    return found
