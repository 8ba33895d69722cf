"""The worked example of docs/economics.md as input of the decision: one engine of 64 slots, one hosted model."""

from gateway.ledger.entry import Facts
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import Candidate, EngineSpeed, RequestFacts, Snapshot

OWN, HOSTED = "own", "hosted"
SLOTS = 64
STEP_SECONDS = 0.020 + 0.0005 * SLOTS
INPUT_TOKENS, OUTPUT_TOKENS, CACHED_SHARE = 500, 300, 0.4
PREFILL_TOKENS_PER_SECOND = 8000.0
GPU_SECONDS = (1 - CACHED_SHARE) * INPUT_TOKENS / PREFILL_TOKENS_PER_SECOND + OUTPUT_TOKENS * STEP_SECONDS / SLOTS
RESIDENCE_SECONDS = GPU_SECONDS * SLOTS
FIRST_TOKEN_TARGET_SECONDS = 1.0
WAIT_SECONDS = FIRST_TOKEN_TARGET_SECONDS - INPUT_TOKENS / PREFILL_TOKENS_PER_SECOND
USD_PER_HOUR = 2.0
VALUE_USD = (INPUT_TOKENS * 0.15 + OUTPUT_TOKENS * 0.60) / 1e6
DAYS = 30
HOURS_A_DAY = 8
"""Hours a day at each of the loads."""
LOADS = (12.0, 6.0, 2.0)
RULES = "version: 1\nrules:\n  - name: cheapest\n    choose: {from: any, by: expected_cost}\n"


def month_saving_usd(served_per_second: dict[float, float]) -> float:
    """What the engine saves in a month, less its rent, if it serves these requests per second at each load."""
    seconds = DAYS * HOURS_A_DAY * 3600
    rent = DAYS * HOURS_A_DAY * len(LOADS) * USD_PER_HOUR
    return sum(rate * seconds * VALUE_USD for rate in served_per_second.values()) - rent


def build_snapshot() -> Snapshot:
    """Rules, models and prices."""
    prices = ModelPrices(ladder=Ladder(base=Rates(input=150_000, output=600_000)), from_us=0, source="worked example")
    speed = EngineSpeed(PREFILL_TOKENS_PER_SECOND, STEP_SECONDS / SLOTS, STEP_SECONDS, round(USD_PER_HOUR * 1e12))
    candidates = {
        OWN: _candidate(OWN, speed=speed, prices=None),
        HOSTED: _candidate(HOSTED, speed=None, prices=prices),
    }
    document = parse_rules(RULES, known_models=frozenset(candidates))
    return Snapshot(tuple(document.rules), candidates, "example", "example", "none")


def request(free_slots: int, queue_seconds: float) -> RequestFacts:
    """The example's request, arriving at an engine in that state."""
    facts = Facts(
        input_tokens=INPUT_TOKENS,
        max_output_tokens=None,
        difficulty=None,
        uncertainty=None,
        quality={},
        output_tokens={OWN: float(OUTPUT_TOKENS), HOSTED: float(OUTPUT_TOKENS)},
        backend_state={OWN: (free_slots, queue_seconds)},
    )
    return RequestFacts("auto", "chat.completions", "key", None, None, (), None, facts)


def _candidate(name: str, *, speed: EngineSpeed | None, prices: ModelPrices | None) -> Candidate:
    return Candidate(
        name=name,
        backend=name,
        provider=name,
        upstream_model=name,
        context_window=100_000,
        supports=frozenset({"streaming"}),
        is_local=speed is not None,
        is_simulated=False,
        prices=prices,
        speed=speed,
    )
