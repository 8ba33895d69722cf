"""Valid defaults for values that many tests need; each test overrides only what it is about."""

from typing import Any

from gateway.ledger.entry import Facts
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import Candidate, EngineSpeed, RequestFacts, Snapshot

DEFAULT_RULES = """
version: 1
rules:
  - name: default
    choose: {from: any, min_quality: 0.5}
"""


def make_prices(input_usd_per_mtok: float = 1.0, output_usd_per_mtok: float = 4.0, **changes: Any) -> ModelPrices:
    rates = Rates(input=round(input_usd_per_mtok * 1e6), output=round(output_usd_per_mtok * 1e6), **changes)
    return ModelPrices(ladder=Ladder(base=rates), from_us=0, source="test")


def make_facts(**changes: Any) -> Facts:
    values: dict[str, Any] = {
        "input_tokens": 100,
        "max_output_tokens": None,
        "difficulty": 0.3,
        "uncertainty": 0.1,
        "quality": {"local": 0.6, "mid": 0.8, "large": 0.95},
        "output_tokens": {"local": 100.0, "mid": 100.0, "large": 100.0},
        "draw": 0.9,
    }
    return Facts(**{**values, **changes})


def make_request(**changes: Any) -> RequestFacts:
    """Fields of RequestFacts or of Facts, whichever has the name."""
    values: dict[str, Any] = {
        "requested_model": "auto",
        "operation": "chat.completions",
        "key_id": "key-1",
        "team": None,
        "project": None,
        "tags": (),
        "allowed_models": None,
    }
    own = {name: value for name, value in changes.items() if name in values}
    rest = {name: value for name, value in changes.items() if name not in values}
    return RequestFacts(**{**values, **own}, facts=make_facts(**rest))


def make_candidate(name: str = "mid", **changes: Any) -> Candidate:
    values: dict[str, Any] = {
        "name": name,
        "backend": "openai",
        "provider": "openai",
        "upstream_model": f"upstream-{name}",
        "context_window": 100_000,
        "supports": frozenset({"streaming", "tools"}),
        "is_local": False,
        "is_simulated": False,
        "prices": make_prices(),
        "speed": None,
    }
    return Candidate(**{**values, **changes})


def make_local(name: str = "local", **changes: Any) -> Candidate:
    speed = EngineSpeed(8000.0, 0.052 / 64, 0.052, 2 * 10**12)
    values: dict[str, Any] = {"backend": "local", "provider": "local", "is_local": True, "prices": None, "speed": speed}
    values["takes_salt"] = True
    return make_candidate(name, **{**values, "context_window": 8192, **changes})


def make_snapshot(rules: str = DEFAULT_RULES, candidates: list[Candidate] | None = None) -> Snapshot:
    if candidates is None:
        candidates = [make_local(), make_candidate("mid"), make_candidate("large", prices=make_prices(10, 40))]
    by_name = {candidate.name: candidate for candidate in candidates}
    document = parse_rules(rules, known_models=frozenset(by_name))
    return Snapshot(tuple(document.rules), by_name, "rules-1", "prices-1", "classifier-1")
