"""How long a month's replay takes.

Synthetic requests, decided and priced by the gateway's own functions. The time to generate the requests is measured and
subtracted.
"""

import random
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.report import Bar, build_report, options, publish
from gateway.economics.replay.log import LoggedRequest, Served
from gateway.economics.replay.replay import replay
from gateway.ledger.entry import Facts
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates
from gateway.reports.replay_service import scenario_of
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import Candidate, EngineSpeed, RequestFacts, Snapshot

BAR_SECONDS = 60.0
PER_SECOND = 2.0
RULES = """
version: 1
models:
  small: {backend: engine, upstream_model: small, context_window: 32768, supports: [streaming]}
  mid: {backend: hosted, upstream_model: mid, context_window: 200000, supports: [streaming, tools]}
  large: {backend: hosted, upstream_model: large, context_window: 200000, supports: [streaming, tools]}
rules:
  - {name: easy, when: {difficulty: {at_most: 0.35}}, choose: {from: [small, mid], by: expected_cost, min_quality: 0.4}}
  - {name: hard, when: {difficulty: {at_least: 0.8}}, choose: {from: [mid, large], by: quality}}
  - {name: default, choose: {from: [small, mid, large], by: expected_cost, min_quality: 0.65}}
"""
RATES = {
    "mid": Rates(input=400_000, cached_input=100_000, output=1_600_000),
    "large": Rates(input=2_000_000, cached_input=500_000, output=8_000_000),
}


class SyntheticLog:
    """Generates requests as they are read; `seconds` and `cpu_seconds` are the time that took."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __iter__(self) -> Iterator[LoggedRequest]:
        source = random.Random(1)
        for index in range(self.requests):
            started, cpu_started = time.perf_counter(), time.process_time()
            one = make_request(index, source)
            self.seconds += time.perf_counter() - started
            self.cpu_seconds += time.process_time() - cpu_started
            yield one


def make_request(index: int, source: random.Random) -> LoggedRequest:
    input_tokens, output_tokens = source.randrange(100, 6000), source.randrange(20, 600)
    facts = Facts(
        input_tokens=input_tokens,
        max_output_tokens=1024,
        difficulty=source.random(),
        uncertainty=0.1,
        quality={"small": 0.55, "mid": 0.72, "large": 0.85},
        output_tokens={"small": 250.0, "mid": 280.0, "large": 260.0},
        backend_state={"small": (source.randrange(0, 8), 0.0)},
    )
    served = Served(round(index / PER_SECOND * 1e6), input_tokens, 0, 0, output_tokens, 0.0)
    return LoggedRequest(
        request=RequestFacts("auto", "chat.completions", "key", "team", None, (), None, facts),
        request_id=f"{index:032x}",
        model="mid",
        served=served,
        cost_pico_usd=input_tokens * 400_000 + output_tokens * 1_600_000,
        quality=0.72,
        time_to_first_token_seconds=0.5,
        total_seconds=5.0,
    )


def build_snapshot() -> Snapshot:
    document = parse_rules(RULES)
    candidates = {
        name: Candidate(
            name=name,
            backend=model.backend,
            provider=model.backend,
            upstream_model=model.upstream_model,
            context_window=model.context_window,
            supports=frozenset(model.supports),
            is_local=name == "small",
            is_simulated=False,
            prices=ModelPrices(Ladder(RATES[name]), 0, "benchmark") if name in RATES else None,
            speed=EngineSpeed(8000.0, 0.0008125, 0.052, 2 * 10**12) if name == "small" else None,
            typical_time_to_first_token_seconds=0.5,
        )
        for name, model in document.models.items()
    }
    return Snapshot(tuple(document.rules), candidates, "rules", "prices", "classifier")


def measure(requests: int) -> dict[str, Any]:
    """One replay; the bar is for a million requests, to which the measured time is scaled."""
    log, scenario = SyntheticLog(requests), scenario_of(build_snapshot())
    started, cpu_started = time.perf_counter(), time.process_time()
    diff = replay(log, scenario)
    seconds = time.perf_counter() - started - log.seconds
    cpu_seconds = time.process_time() - cpu_started - log.cpu_seconds
    per_million = seconds / requests * 1e6
    results = {
        "requests": requests,
        "replay_seconds": seconds,
        "replay_cpu_seconds": cpu_seconds,
        "microseconds_per_request": per_million,
        "moved": diff.moved,
        "cost_change_usd": diff.cost_change_pico_usd / 1e12,
    }
    bar = Bar("seconds to replay a million requests", per_million, BAR_SECONDS, "most")
    return build_report("replay", results, [bar])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    chosen = parser.parse_args()
    measured = measure(chosen.requests)
    publish(measured, chosen, measured["results"])


if __name__ == "__main__":
    main()
