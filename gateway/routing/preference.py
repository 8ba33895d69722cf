"""Of the models that can serve a request, which ones a rule's `choose` keeps, prefers, and explores. Pure; who can
serve it, and at what cost, is determined before."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from gateway.ledger.entry import Facts
from gateway.routing.equals import share_load
from gateway.routing.expected_cost import is_slot_free
from gateway.routing.rules import Choose, Rule, Terms
from gateway.routing.snapshot import Candidate

UNPRICED = 1 << 62
"""Ranks after every known price: an unknown price is never the cheapest."""
ROUNDING = 1e-9
"""Qualities are stored to four decimals; smaller differences are rounding errors."""


class Ranked(msgspec.Struct, frozen=True):
    """One candidate with the figures that it is judged by; `rejected` says why it cannot serve, if so."""

    candidate: Candidate
    expected_cost_pico_usd: int | None
    quality: float | None
    time_to_first_token_seconds: float
    rejected: str | None = None


def _limit_reason(ranked: Ranked, choose: Choose) -> str | None:
    cost = ranked.expected_cost_pico_usd
    match next(_exceeding([ranked], choose)):
        case "quality":
            return f"predicted quality {ranked.quality:.3f} is below {choose.min_quality}"
        case "cost":
            return "expected cost is above the rule's limit" if cost is not None else "its price is not known"
        case "time":
            limit = choose.max_time_to_first_token_seconds
            return f"first token expected after {ranked.time_to_first_token_seconds:.2f} s, limit {limit} s"
        case None:
            return None


def _exceeding(weighed: Iterable[Ranked], choose: Choose) -> Iterator[Literal["quality", "cost", "time"] | None]:
    """Which of the rule's limits each candidate exceeds first."""
    least, most = choose.min_quality, choose.max_cost_pico_usd
    longest = choose.max_time_to_first_token_seconds
    for one in weighed:
        cost, quality = one.expected_cost_pico_usd, one.quality
        if least is not None and quality is not None and quality < least:
            yield "quality"
        elif most is not None and (cost is None or cost > most):
            yield "cost"
        else:
            yield "time" if longest is not None and one.time_to_first_token_seconds > longest else None


def with_limit_reason(ranked: Ranked, choose: Choose) -> Ranked:
    """The same candidate, rejected if it exceeds one of the rule's limits."""
    return msgspec.structs.replace(ranked, rejected=ranked.rejected or _limit_reason(ranked, choose))


def apply_limits(able: list[Ranked], choose: Choose) -> list[Ranked]:
    """Candidates within all of the rule's limits."""
    if not choose.has_limits:
        return able
    return [one for one, exceeded in zip(able, _exceeding(able, choose), strict=True) if exceeded is None]


def apply_quality_shares(able: list[Ranked], kept: list[Ranked], rule: Rule, facts: Facts) -> list[Ranked]:
    """Of `kept`, those close enough to the best: `keep_quality` applies to this prompt, `quality_share` to all traffic
    through its calibrated threshold. Without one it applies to this prompt too, which is stricter."""
    share, target = rule.choose.keep_quality or 0.0, rule.target_name
    if not share and target is None:
        return kept
    loss = 1.0 if target is None else facts.allowed_loss.get(target)
    if loss is None:
        loss, share = 1.0, max(share, rule.choose.quality_share or 0.0)
    best = best_quality(able)
    least = max(share * best, best - loss - ROUNDING)
    return [one for one in kept if one.quality is None or one.quality >= least]


def best_quality(ranked: Iterable[Ranked]) -> float:
    """The highest predicted quality; 0 if none is predicted."""
    return max((one.quality for one in ranked if one.quality is not None), default=0.0)


def beyond_limits(ranked: list[Ranked], choose: Choose) -> list[Ranked]:
    """Best quality first. If cost is limited, candidates within the limit come first and then the cheapest: otherwise
    the most expensive requests would go to the most expensive model."""
    limit = choose.max_cost_pico_usd
    if limit is None:
        return _by_quality(ranked)
    within = [one for one in ranked if _cost_of(one) <= limit]
    dearer = [one for one in ranked if _cost_of(one) > limit]
    return [
        *_by_quality(within),
        *sorted(dearer, key=_by_cost),
    ]


def _by_quality(ranked: list[Ranked]) -> list[Ranked]:
    if len(ranked) < 2:
        return ranked
    return sorted(ranked, key=_by_quality_and_cost)


def _cost_of(ranked: Ranked) -> int:
    return UNPRICED if ranked.expected_cost_pico_usd is None else ranked.expected_cost_pico_usd


def in_order(kept: list[Ranked], terms: Terms, facts: Facts) -> list[Ranked]:
    """Best first. A full engine, unless a latency target already accounts for its queue, goes behind every model that
    can start now."""
    if len(kept) == 1:
        return kept
    by = terms.by
    ordered = kept if by == "order" else _by_quality(kept) if by == "quality" else sorted(kept, key=_by_cost)
    # With a latency target, apply_limits has checked the queueing time.
    if terms.first_token_seconds is not None or not facts.backend_state:
        return ordered
    return sorted(ordered, key=lambda one: not is_slot_free(facts, one.candidate.name))


# Without calls to functions of ours, because they run for each of what may be hundreds of candidates.
def _by_cost(ranked: Ranked) -> tuple[int, float, str]:
    cost, quality = ranked.expected_cost_pico_usd, ranked.quality
    return UNPRICED if cost is None else cost, 1.0 if quality is None else -quality, ranked.candidate.name


def _by_quality_and_cost(ranked: Ranked) -> tuple[float, int, str]:
    cost, quality = ranked.expected_cost_pico_usd, ranked.quality
    return 1.0 if quality is None else -quality, UNPRICED if cost is None else cost, ranked.candidate.name


def with_load_shared(ordered: list[Ranked], terms: Terms, facts: Facts) -> tuple[list[Ranked], int]:
    """Reorders candidates as good as the first by `share_load`; also returns how many could be first by chance
    alone."""
    first, number = ordered[0], 1
    if terms.by == "order":
        return ordered, 1
    while number < len(ordered) and _is_as_good(ordered[number], first, facts):
        number += 1
    if number == 1:
        return ordered, 1
    shared, equals = share_load(ordered[:number], facts)
    return shared + ordered[number:], equals


def _is_as_good(one: Ranked, other: Ranked, facts: Facts) -> bool:
    """Without predicted quality only the same upstream model counts as equal (embeddings of different models are not
    interchangeable)."""
    return (
        one.expected_cost_pico_usd == other.expected_cost_pico_usd
        and one.quality == other.quality
        and (one.quality is not None or one.candidate.upstream_model == other.candidate.upstream_model)
        and (
            not facts.backend_state
            or is_slot_free(facts, one.candidate.name) == is_slot_free(facts, other.candidate.name)
        )
    )


def within_reach(able: list[Ranked], kept: list[Ranked], rule: Rule, facts: Facts) -> list[Ranked]:
    """What exploration may try besides the preferred model."""
    if rule.choose.explore_min_quality is None:
        return kept
    return apply_quality_shares(able, apply_limits(able, rule.choose.exploring), rule, facts)


def explore(
    ordered: list[Ranked], equals: int, reach: list[Ranked], rule: Rule, facts: Facts
) -> tuple[Ranked, list[Ranked], float]:
    """With probability `explore` picks uniformly among the models within reach that today's exploration budget can
    afford, including the preferred one, itself drawn from `equals`. Returns the pick, the order and its propensity."""
    chance, cap = rule.choose.explore, rule.choose.explore_pico_usd_per_day
    others = [one for one in ordered[1:] if one in reach] + [one for one in reach if one not in ordered]
    if cap is not None:
        room = max(0, cap - facts.explored_pico_usd.get(rule.name, 0))
        others = [one for one in others if extra_cost(one, ordered[0]) <= room]
    if not others:
        return ordered[0], ordered, 1.0 / equals
    open_to = [ordered[0], *others]
    share = chance / len(open_to)
    best_propensity = (1.0 - chance) / equals + share
    if facts.draw >= chance:
        return ordered[0], ordered, best_propensity
    picked = open_to[min(int(facts.draw / share), len(open_to) - 1)]
    rest = [ranked for ranked in ordered if ranked is not picked]
    return picked, [picked, *rest], best_propensity if picked in ordered[:equals] else share


def extra_cost(tried: Ranked, preferred: Ranked) -> int:
    """Cost beyond the preferred candidate's; an unknown price exceeds every cap."""
    return max(0, _cost_of(tried) - _cost_of(preferred))
