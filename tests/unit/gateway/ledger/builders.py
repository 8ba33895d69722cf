"""Valid intents and entries; each test overrides only what it is about."""

from typing import Any

import msgspec

from gateway.ledger.entry import Attempt, Checkpoint, Cost, Decision, Entry, Facts, Intent, Status


def request_id(number: int) -> str:
    return f"{number:032x}"


def make_facts(**given: Any) -> Facts:
    fields: dict[str, Any] = {
        "input_tokens": 500,
        "max_output_tokens": 300,
        "difficulty": 0.25,
        "uncertainty": 0.1,
        "quality": {"small-local": 0.7, "mid-hosted": 0.9},
        "output_tokens": {"small-local": 200.0, "mid-hosted": 250.0},
        "draw": 0.5,
    }
    return Facts(**{**fields, **given})


def make_decision(**given: Any) -> Decision:
    fields: dict[str, Any] = {
        "rule": "default",
        "model": "mid-hosted",
        "candidates": ("small-local", "mid-hosted"),
        "expected_cost_pico_usd": 250_000_000,
        "predicted_quality": 0.9,
        "propensity": 1.0,
        "rules_version": "rules-1",
        "prices_version": "prices-1",
        "classifier_version": "classifier-1",
        "facts": make_facts(),
    }
    return Decision(**{**fields, **given})


def make_intent(number: int = 1, **given: Any) -> Intent:
    fields: dict[str, Any] = {
        "request_id": request_id(number),
        "accepted_at_us": 1_767_225_600_000_000 + number * 1_000,  # from 2026-01-01T00:00:00Z
        "key_id": "key-1",
        "team": "search",
        "project": "ranking",
        "tags": ("batch",),
        "operation": "chat.completions",
        "requested_model": "auto",
        "is_stream": True,
        "decision": make_decision(),
        "backend": "openai",
        "provider": "openai",
        "upstream_model": "gpt-5.4-mini",
        "cost_bound_pico_usd": 255_000_000,
    }
    return Intent(**{**fields, **given})


def make_checkpoint(number: int = 1, **given: Any) -> Checkpoint:
    fields: dict[str, Any] = {"request_id": request_id(number), "output_tokens": 256, "cost_so_far_pico_usd": 1_000}
    return Checkpoint(**{**fields, **given})


def make_entry(number: int = 1, *, intent: Intent | None = None, **given: Any) -> Entry:
    cost = Cost(
        input_pico_usd=60_000_000,
        cached_input_pico_usd=3_000_000,
        output_pico_usd=180_000_000,
        list_pico_usd=243_000_000,
    )
    fields: dict[str, Any] = {
        "intent": intent or make_intent(number),
        "status": Status.completed,
        "model": "mid-hosted",
        "backend": "openai",
        "provider": "openai",
        "upstream_model": "gpt-5.4-mini",
        "input_tokens": 500,
        "cached_input_tokens": 100,
        "cache_write_5m_tokens": 0,
        "cache_write_1h_tokens": 0,
        "output_tokens": 300,
        "reasoning_tokens": 40,
        "is_usage_estimated": False,
        "is_simulated": False,
        "service_tier": "default",
        "cost": cost,
        "cost_lower_pico_usd": cost.total_pico_usd,
        "cost_upper_pico_usd": cost.total_pico_usd,
        "gpu_seconds": 0.0,
        "queue_seconds": None,
        "time_to_first_token_seconds": 0.41,
        "prefill_tokens_per_second": None,
        "decode_tokens_per_second": 71.5,
        "total_seconds": 4.6,
        "finish_reason": "stop",
        "http_status": 200,
        "error": None,
        "attempts": (Attempt(1, "mid-hosted", "openai", "answered", 0.002, 4.598, 243_000_000, 200),),
    }
    return Entry(**{**fields, **given})


def make_local_entry(number: int = 1, **given: Any) -> Entry:
    """An entry answered by our own engine: GPU-seconds instead of token prices."""
    cost = Cost(compute_pico_usd=156_250_000, list_pico_usd=156_250_000)
    fields: dict[str, Any] = {
        "model": "small-local",
        "backend": "local",
        "provider": "local",
        "upstream_model": "smollm2-135m-instruct",
        "cached_input_tokens": 0,
        "reasoning_tokens": 0,
        "service_tier": None,
        "cost": cost,
        "cost_lower_pico_usd": cost.total_pico_usd,
        "cost_upper_pico_usd": cost.total_pico_usd,
        "gpu_seconds": 0.28125,
        "queue_seconds": 0.003,
        "prefill_tokens_per_second": 8000.0,
        "decode_tokens_per_second": 19.2,
    }
    return make_entry(number, **{**fields, **given})


def tiny_entry(number: int) -> Entry:
    """Entries and intents of exactly equal length: the worst case for torn tails."""
    facts = Facts(1, None, None, None, {}, {})
    intent = make_intent(number, decision=make_decision(facts=facts, candidates=()), tags=())
    return msgspec.structs.replace(make_entry(number, intent=intent), attempts=(), cost=Cost())


def failed_attempt(number: int) -> Attempt:
    return Attempt(number, "mid-hosted", "openai", "RateLimited", 0.001, 0.2, 0, 429)
