"""The decision: a request and a snapshot in, an order of models with the reasons out. Same in, same out, always."""

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final, NoReturn

import msgspec

from gateway.errors import ModelNotFound, NoCapableModel
from gateway.ledger.entry import Decision, Facts
from gateway.routing.equals import share_load
from gateway.routing.expected_cost import (
    expected_cost_pico_usd,
    expected_time_to_first_token_seconds,
    is_slot_free,
)
from gateway.routing.refusals import (
    DOWN_BECAUSE,
    LACKS,
    TOO_LONG,
    none_does,
    other_use,
    refusal,
    refusal_without_candidates,
)
from gateway.routing.rules import AUTO, CASCADED, EMBEDDINGS, SPECIALTIES, Cascade, Choose, Rule, Verify, When
from gateway.routing.snapshot import Candidate, RequestFacts, Snapshot

DIRECT = "(direct)"
"""In place of a rule's name: the request named its model, and no rule is for that name."""
SIMULATE_TAG = "simulate-hosted"
UNPRICED = 1 << 62
"""Ranks after every known price: an unknown price is never the cheapest."""
ROUNDING = 1e-9
"""Qualities are stored to four decimals; what their differences have beyond is not theirs."""


class Ranked(msgspec.Struct, frozen=True):
    """One candidate with the figures it was judged by; `rejected` says why it may not serve, if so."""

    candidate: Candidate
    expected_cost_pico_usd: int | None
    quality: float | None
    time_to_first_token_seconds: float
    rejected: str | None = None


class Escalation(msgspec.Struct, frozen=True):
    """The answer of the order's first stands `verify`, or these are asked instead."""

    verify: Verify
    order: tuple[Candidate, ...]


class Choice(msgspec.Struct, frozen=True):
    """The decision for the ledger, the order in which models are tried, and everything that was weighed.

    `first_token_seconds` is the rule's limit, where the models at the head of the order are expected to keep it.
    `attempts_before` were made before this order was tried: it is what an answer was escalated to.
    """

    decision: Decision
    order: tuple[Candidate, ...]
    weighed: tuple[Ranked, ...]
    first_token_seconds: float | None = None
    escalation: Escalation | None = None
    attempts_before: int = 0


def deciding_tags(snapshot: Snapshot) -> frozenset[str]:
    """Those that a decision under this snapshot may depend on."""
    named = (tag for rule in snapshot.rules if rule.when is not None for tag in rule.when.tags or ())
    return frozenset((SIMULATE_TAG, *named))


def decide(request: RequestFacts, snapshot: Snapshot) -> Choice:
    """Choose. Raises ModelNotFound, ContextTooLong or NoEligibleModel; never anything else."""
    rule = rule_of(request, snapshot.rules) if request.requested_model in snapshot.routed_names else None
    if rule is None:
        return _decide_direct(request, snapshot)
    choose = rule.choose
    pool = _pool(choose.from_, request, snapshot)
    weighed = [_weigh(candidate, request) for candidate in pool]
    able = [ranked for ranked in weighed if ranked.rejected is None]
    if not able:
        if rule.cascade is not None:
            return _escalated_at_once(request, rule, rule.cascade, weighed, snapshot)
        if not pool:
            _refuse_without_pool(request, rule, snapshot)
        _refuse(request, rule.name, weighed)
    kept = _apply_quality_shares(able, _apply_limits(able, choose), rule, request.facts)
    if not kept and choose.if_none == "refuse":
        _refuse(request, rule.name, [_with_limit_reason(ranked, choose) for ranked in weighed])
    ordered, equals = _share_load(_order(kept, choose, request), choose, request.facts) if kept else ([], 1)
    ordered = ordered or _beyond_limits(able, choose)
    spare = _beyond_limits(_dropped(able, ordered), choose)
    preferred = ordered[0]
    chosen, ordered, propensity = _explore(ordered, equals, rule, request.facts) if kept else (preferred, ordered, 1.0)
    choice = _choice(request, snapshot, rule.name, chosen, [*ordered, *spare], weighed, propensity)
    if chosen is not preferred and chosen.expected_cost_pico_usd is not None:
        more = msgspec.structs.replace(choice.decision, exploration_pico_usd=_extra_cost(chosen, preferred))
        choice = msgspec.structs.replace(choice, decision=more)
    limit = choose.max_time_to_first_token_seconds if kept else None
    if limit is not None:
        choice = msgspec.structs.replace(choice, first_token_seconds=limit)
    return choice if rule.cascade is None else _cascaded(choice, rule.cascade, request, snapshot)


HOLDS: Final[Mapping[str, Callable[[Any, RequestFacts], bool]]] = {
    "difficulty": lambda given, request: given.holds(request.facts.difficulty),
    "uncertainty": lambda given, request: given.holds(request.facts.uncertainty),
    "input_tokens": lambda given, request: given.holds(request.facts.input_tokens),
    "tags": lambda given, request: set(given) <= set(request.tags),
    "needs": lambda given, request: set(given) <= set(request.facts.needs),
    "team": lambda given, request: request.team in given,
    "project": lambda given, request: request.project in given,
    "key": lambda given, request: request.key_id in given,
    "operation": lambda given, request: request.operation in given,
    "model": lambda given, request: request.requested_model in given,
}
"""Each condition of `When`, and what it means."""


def matches(when: When | None, request: RequestFacts) -> bool:
    """Whether all conditions hold."""
    if when is not None:
        for name, given in when.conditions.items():
            if not HOLDS[name](given, request):
                return False
    return True


def _cascaded(choice: Choice, cascade: Cascade, request: RequestFacts, snapshot: Snapshot) -> Choice:
    """With whom to escalate to. What cannot be verified, a stream above all, goes to them at once; where none of them
    can serve, or one of them was chosen anyway, the choice stays as it is."""
    pool = _pool(cascade.escalate_to, request, snapshot)
    weighed = [_weigh(one, request) for one in pool]
    able = [ranked for ranked in weighed if ranked.rejected is None]
    order = tuple(ranked.candidate for ranked in able)
    if not order or choice.decision.model in cascade.escalate_to:
        return choice
    known = set(choice.decision.candidates)
    everything = [*choice.weighed, *(one for one in weighed if one.candidate.name not in known)]
    if request.operation == CASCADED and "streaming" not in request.facts.needs:
        names = tuple(one.name for one in order)
        decision = msgspec.structs.replace(choice.decision, escalates_to=names)
        return msgspec.structs.replace(choice, decision=decision, escalation=Escalation(cascade.verify, order))
    spare = [one for one in everything if one.candidate in choice.order and one.candidate not in order]
    return _choice(request, snapshot, choice.decision.rule, able[0], [*able, *spare], everything, 1.0)


def _escalated_at_once(
    request: RequestFacts, rule: Rule, cascade: Cascade, weighed: list[Ranked], snapshot: Snapshot
) -> Choice:
    """None of the rule's models may serve: whoever its answer would have been escalated to does. Raises as `decide`."""
    strong = [_weigh(one, request) for one in _pool(cascade.escalate_to, request, snapshot)]
    known = {ranked.candidate.name for ranked in weighed}
    everything = [*weighed, *(one for one in strong if one.candidate.name not in known)]
    able = [ranked for ranked in strong if ranked.rejected is None]
    if not everything:
        _refuse_without_pool(request, rule, snapshot)
    if not able:
        _refuse(request, rule.name, everything)
    return _choice(request, snapshot, rule.name, able[0], able, everything, 1.0)


def _decide_direct(request: RequestFacts, snapshot: Snapshot) -> Choice:
    candidate = snapshot.candidates.get(request.requested_model)
    if candidate is None or not _is_allowed(candidate, request):
        known = {name for name, other in snapshot.candidates.items() if _is_allowed(other, request)}
        raise ModelNotFound(request.requested_model, sorted(known | snapshot.routed_names - {AUTO}))
    ranked = _weigh(candidate, request)
    if ranked.rejected is not None:
        _refuse(request, DIRECT, [ranked])
    return _choice(request, snapshot, DIRECT, ranked, [ranked], [ranked], 1.0)


def _pool(named: list[str] | str, request: RequestFacts, snapshot: Snapshot) -> list[Candidate]:
    """Those of the named that the key may use. Of whole kinds only those that are made for such a request: no chat is
    asked of a model that embeds."""
    candidates = snapshot.candidates
    if isinstance(named, list):  # the backend of one may be switched off
        return [candidates[name] for name in named if name in candidates and _is_allowed(candidates[name], request)]
    wanted = SPECIALTIES.get(request.operation)
    fitting = [one for one in candidates.values() if one.specialty == wanted and _is_allowed(one, request)]
    return fitting if named == "any" else [one for one in fitting if one.is_local == (named == "local")]


def _is_allowed(candidate: Candidate, request: RequestFacts) -> bool:
    """The key's own list, and: a simulated model answers only those who asked for simulation by tag."""
    if candidate.is_simulated and SIMULATE_TAG not in request.tags:
        return False
    return request.allowed_models is None or candidate.name in request.allowed_models


def _weigh(candidate: Candidate, request: RequestFacts) -> Ranked:
    facts = request.facts
    room = candidate.context_window - facts.input_tokens
    rejected = None
    if (specialty := candidate.specialty) != (wanted := SPECIALTIES.get(request.operation)) and (
        specialty is not None or wanted != EMBEDDINGS  # a server may embed with a model that writes
    ):
        rejected = f"{LACKS} {request.operation}: {other_use(specialty)}"
    elif not candidate.supports.issuperset(facts.needs):
        rejected = f"{LACKS} {', '.join(sorted(set(facts.needs) - candidate.supports))}"
    elif room < (facts.max_output_tokens or 1):
        asked = f" + {facts.max_output_tokens:,} asked for" if facts.max_output_tokens else ""
        rejected = f"about {facts.input_tokens:,} tokens{asked} {TOO_LONG} of {candidate.context_window:,}"
    elif (slots := facts.backend_state.get(candidate.name, (0, 0.0))[0]) < 0:
        rejected = DOWN_BECAUSE.get(slots, "its backend is down")
    return Ranked(
        candidate,
        expected_cost_pico_usd(facts, candidate),
        facts.quality.get(candidate.name),
        expected_time_to_first_token_seconds(facts, candidate),
        rejected,
    )


def _limit_reason(ranked: Ranked, choose: Choose) -> str | None:
    cost, quality = ranked.expected_cost_pico_usd, ranked.quality
    if choose.min_quality is not None and quality is not None and quality < choose.min_quality:
        return f"predicted quality {quality:.3f} is below {choose.min_quality}"
    if choose.max_cost_pico_usd is not None and (cost is None or cost > choose.max_cost_pico_usd):
        return "expected cost is above the rule's limit" if cost is not None else "its price is not known"
    limit = choose.max_time_to_first_token_seconds
    if limit is not None and ranked.time_to_first_token_seconds > limit:
        return f"first token expected after {ranked.time_to_first_token_seconds:.2f} s, limit {limit} s"
    return None


def _with_limit_reason(ranked: Ranked, choose: Choose) -> Ranked:
    return msgspec.structs.replace(ranked, rejected=ranked.rejected or _limit_reason(ranked, choose))


def _apply_limits(able: list[Ranked], choose: Choose) -> list[Ranked]:
    return [ranked for ranked in able if _limit_reason(ranked, choose) is None] if choose.has_limits else able


def _apply_quality_shares(able: list[Ranked], kept: list[Ranked], rule: Rule, facts: Facts) -> list[Ranked]:
    """Of the kept those that are near enough to the best: by `keep_quality` on this prompt, by `quality_share` over all
    traffic, where its threshold is calibrated, and else on this prompt too, which keeps it all the more."""
    share, target = rule.choose.keep_quality or 0.0, rule.target_name
    if not share and target is None:
        return kept
    loss = 1.0 if target is None else facts.allowed_loss.get(target)
    if loss is None:
        loss, share = 1.0, max(share, rule.choose.quality_share or 0.0)
    best = best_quality(able)
    least = max(share * best, best - loss - ROUNDING)
    return [one for one in kept if one.quality is None or one.quality >= least]


def options(request: RequestFacts, rule: Rule, snapshot: Snapshot) -> tuple[float, list[Ranked]]:
    """The best quality that could be had under the rule, and what it would choose from, in order, if any loss of
    quality were allowed."""
    pool = _pool(rule.choose.from_, request, snapshot)
    able = [ranked for ranked in (_weigh(one, request) for one in pool) if ranked.rejected is None]
    kept = _apply_limits(able, rule.choose)
    return best_quality(able), _order(kept, rule.choose, request)


def best_quality(ranked: Iterable[Ranked]) -> float:
    """The highest that is predicted; 0 where none is."""
    return max((one.quality for one in ranked if one.quality is not None), default=0.0)


def rule_of(request: RequestFacts, rules: Iterable[Rule]) -> Rule | None:
    """The first whose conditions all hold. The last has none, so there is one for every request for `auto`; what names
    a model is only for rules that name it."""
    is_auto = request.requested_model == AUTO
    for rule in rules:
        if (is_auto or (rule.when is not None and rule.when.model is not None)) and matches(rule.when, request):
            return rule
    return None


def _dropped(able: list[Ranked], ordered: list[Ranked]) -> list[Ranked]:
    if len(ordered) == len(able):
        return []
    placed = {ranked.candidate.name for ranked in ordered}
    return [ranked for ranked in able if ranked.candidate.name not in placed]


def _beyond_limits(ranked: list[Ranked], choose: Choose) -> list[Ranked]:
    """The best first; where cost is limited, those within that limit first and then the cheapest, or the very requests
    that cost most would go to the dearest model."""
    limit = choose.max_cost_pico_usd
    if limit is None:
        return _by_quality(ranked)
    within = [one for one in ranked if _cost_of(one) <= limit]
    dearer = [one for one in ranked if _cost_of(one) > limit]
    return [
        *_by_quality(within),
        *sorted(dearer, key=lambda one: (_cost_of(one), -_quality_of(one), one.candidate.name)),
    ]


def _by_quality(ranked: list[Ranked]) -> list[Ranked]:
    if len(ranked) < 2:
        return ranked
    return sorted(ranked, key=lambda one: (-_quality_of(one), _cost_of(one), one.candidate.name))


def _quality_of(ranked: Ranked) -> float:
    return ranked.quality if ranked.quality is not None else -1.0


def _cost_of(ranked: Ranked) -> int:
    return UNPRICED if ranked.expected_cost_pico_usd is None else ranked.expected_cost_pico_usd


def _order(kept: list[Ranked], choose: Choose, request: RequestFacts) -> list[Ranked]:
    """Best first. A full engine without slack in the latency target goes behind every model that can start now."""

    if len(kept) == 1:
        return kept
    by, facts = choose.by, request.facts
    has_target = choose.max_time_to_first_token_seconds is not None  # then _apply_limits measured the slack

    def must_wait(ranked: Ranked) -> bool:
        return not (has_target or is_slot_free(facts, ranked.candidate.name))

    if by == "order":
        return sorted(kept, key=must_wait)
    if by == "quality":
        return sorted(_by_quality(kept), key=must_wait)
    return sorted(kept, key=lambda one: (must_wait(one), _cost_of(one), -_quality_of(one), one.candidate.name))


def _share_load(ordered: list[Ranked], choose: Choose, facts: Facts) -> tuple[list[Ranked], int]:
    """Those that are as good as the first in `share_load`'s order, and how many of them are first by chance alone."""
    first = ordered[0]
    if choose.by == "order" or len(ordered) == 1 or not _is_as_good(ordered[1], first, facts):
        return ordered, 1
    by_name = {one.candidate.name: one for one in takewhile(lambda one: _is_as_good(one, first, facts), ordered)}
    names, equals = share_load(list(by_name), facts)
    return [*(by_name[name] for name in names), *ordered[len(names) :]], equals


def _is_as_good(one: Ranked, other: Ranked, facts: Facts) -> bool:
    """Of models that nothing is predicted of (embeddings are compared with each other) only the same one elsewhere."""
    return (
        one.expected_cost_pico_usd == other.expected_cost_pico_usd
        and one.quality == other.quality
        and (one.quality is not None or one.candidate.upstream_model == other.candidate.upstream_model)
        and is_slot_free(facts, one.candidate.name) == is_slot_free(facts, other.candidate.name)
    )


def _explore(ordered: list[Ranked], equals: int, rule: Rule, facts: Facts) -> tuple[Ranked, list[Ranked], float]:
    """With probability `explore` pick uniformly among the kept that today's money for it reaches for, the preferred one
    included, which chance has put before its `equals`; the propensity of what was picked is returned."""
    explore = rule.choose.explore
    if not explore:
        return ordered[0], ordered, 1.0 / equals
    open_to, cap = ordered, rule.choose.explore_pico_usd_per_day
    if cap is not None:
        room = cap - facts.explored_pico_usd.get(rule.name, 0)
        open_to = [ordered[0], *(one for one in ordered[1:] if _extra_cost(one, ordered[0]) <= room)]
    share = explore / len(open_to)
    best_propensity = (1.0 - explore) / equals + share
    if facts.draw >= explore:
        return ordered[0], ordered, best_propensity
    picked = open_to[min(int(facts.draw / share), len(open_to) - 1)]
    rest = [ranked for ranked in ordered if ranked is not picked]
    return picked, [picked, *rest], best_propensity if picked in ordered[:equals] else share


def _extra_cost(tried: Ranked, preferred: Ranked) -> int:
    """Over the preferred one's cost; an unknown price is beyond every cap."""
    return max(0, _cost_of(tried) - _cost_of(preferred))


def _choice(
    request: RequestFacts,
    snapshot: Snapshot,
    rule: str,
    chosen: Ranked,
    ordered: list[Ranked],
    weighed: list[Ranked],
    propensity: float,
) -> Choice:
    decision = Decision(
        rule=rule,
        model=chosen.candidate.name,
        candidates=tuple([ranked.candidate.name for ranked in weighed]),
        expected_cost_pico_usd=chosen.expected_cost_pico_usd,
        predicted_quality=chosen.quality,
        propensity=propensity,
        rules_version=snapshot.rules_version,
        prices_version=snapshot.prices_version,
        classifier_version=snapshot.classifier_version,
        facts=request.facts,
    )
    return Choice(decision, tuple([ranked.candidate for ranked in ordered]), tuple(weighed))


def _refuse(request: RequestFacts, rule: str, weighed: list[Ranked]) -> NoReturn:
    reasons = {ranked.candidate.name: ranked.rejected or "not chosen" for ranked in weighed}
    widest = max(ranked.candidate.context_window for ranked in weighed)
    raise refusal(request.operation, request.facts, rule, reasons, widest=widest)


def _refuse_without_pool(request: RequestFacts, rule: Rule, snapshot: Snapshot) -> NoReturn:
    anybodys = msgspec.structs.replace(request, allowed_models=None)
    offered = [one.name for one in _pool(rule.choose.from_, anybodys, snapshot)]
    if not offered and (wanted := SPECIALTIES.get(request.operation)) is not None:
        raise NoCapableModel(rule.name, {}, why_none=none_does(wanted))
    raise refusal_without_candidates(rule.name, offered, request.allowed_models, snapshot.candidates)
