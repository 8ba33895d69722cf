"""Logs to replay: requests with valid defaults, and logs of what simple rules would have decided."""

from collections.abc import Sequence

from gateway.economics.replay.log import LoggedRequest, Served
from gateway.economics.replay.replay import Decide, Decided
from gateway.ledger.entry import Facts
from gateway.routing.snapshot import RequestFacts

SECOND_US = 1_000_000
LOCAL, MID, BIG = "local", "mid", "big"
MODELS = (LOCAL, MID, BIG)
RATES = {LOCAL: (0, 0, 0), MID: (150_000, 75_000, 600_000), BIG: (2_500_000, 250_000, 10_000_000)}


def price(model: str, served: Served) -> int | None:
    fresh_rate, cached_rate, output_rate = RATES[model]
    fresh = served.input_tokens - served.cached_input_tokens
    return fresh * fresh_rate + served.cached_input_tokens * cached_rate + served.output_tokens * output_rate


def dearer(model: str, served: Served) -> int | None:
    """Every price raised by exactly a tenth."""
    cost = price(model, served)
    return None if cost is None else cost + cost // 10


def make_logged(
    at_seconds: float,
    *,
    model: str = MID,
    input_tokens: int = 2000,
    cached: int = 0,
    output_tokens: int = 300,
    difficulty: float | None = 0.5,
    free: int | None = 4,
    cost: int | None = None,
    total_seconds: float = 10.0,
    max_output_tokens: int | None = None,
    decided: str | None = None,
) -> LoggedRequest:
    served = Served(round(at_seconds * SECOND_US), input_tokens, cached, 0, output_tokens, 0.0)
    facts = Facts(
        input_tokens=input_tokens,
        max_output_tokens=max_output_tokens,
        difficulty=difficulty,
        uncertainty=None,
        quality={LOCAL: 0.5, MID: 0.7, BIG: 0.9},
        output_tokens={},
        warm_tokens={model: cached} if cached else {},
        backend_state={} if free is None else {LOCAL: (free, 0.0)},
    )
    return LoggedRequest(
        request=RequestFacts("auto", "chat.completions", "key", None, None, (), None, facts),
        request_id=f"{served.at_us:032x}",
        model=model,
        served=served,
        cost_pico_usd=price(model, served) if cost is None else cost,
        quality=facts.quality[model],
        time_to_first_token_seconds=0.4,
        total_seconds=total_seconds,
        decided=decided,
    )


def everything_to(model: str) -> Decide:
    def decide(request: RequestFacts, facts: Facts, /) -> Decided | None:
        return Decided(model, facts.quality[model])

    return decide


def by_facts(request: RequestFacts, facts: Facts, /) -> Decided | None:
    """Easy requests go to the engine while it has a slot, cached ones stay at their model, hard ones go to the big
    model."""
    difficulty = facts.difficulty or 0.0
    if difficulty < 0.4 and facts.backend_state.get(LOCAL, (0, 0.0))[0] > 0:
        return Decided(LOCAL, facts.quality[LOCAL])
    if facts.warm_tokens:
        warmest = max(sorted(facts.warm_tokens), key=facts.warm_tokens.__getitem__)
        return Decided(warmest, facts.quality[warmest])
    chosen = BIG if difficulty > 0.7 else MID
    return Decided(chosen, facts.quality[chosen])


def logged_under(decide: Decide, requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """The same requests with the model that `decide` chooses for their facts. Costs are unchanged."""
    log: list[LoggedRequest] = []
    for one in requests:
        decided = decide(one.request, one.facts)
        assert decided is not None
        log.append(
            LoggedRequest(
                one.request,
                one.request_id,
                decided.model,
                one.served,
                one.cost_pico_usd,
                decided.quality,
                one.time_to_first_token_seconds,
                one.total_seconds,
            )
        )
    return log
