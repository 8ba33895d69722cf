"""The decision: from a request and a snapshot to an order of models with reasons. Deterministic."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import msgspec

from gateway.errors import ModelNotFound, NoCapableModel
from gateway.ledger.entry import Decision
from gateway.routing.expected_cost import expected_costs, expected_time_to_first_token_seconds
from gateway.routing.preference import (
    Ranked,
    apply_limits,
    apply_quality_shares,
    best_quality,
    beyond_limits,
    explore,
    extra_cost,
    in_order,
    with_limit_reason,
    with_load_shared,
    within_reach,
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
from gateway.routing.rules import AUTO, CASCADED, EMBEDDINGS, READ_APART, SPECIALTIES, Cascade, Rule, Verify, When
from gateway.routing.snapshot import NAMES, Candidate, Kind, RequestFacts, Snapshot

DIRECT = "(direct)"
"""Stands for the rule's name when the request named its model and no rule routes that name."""
SIMULATE_TAG = "simulate-hosted"
MOST_KINDS = 10_000
"""Of requests, remembered under one snapshot."""


class Escalation(msgspec.Struct, frozen=True):
    """The answer of the first model in the order must pass `verify`, or the models in `order` here are asked
    instead."""

    verify: Verify
    order: tuple[Candidate, ...]


class Choice(msgspec.Struct, frozen=True):
    """The decision for the ledger, the order in which models are tried, and everything that was weighed.

    `first_token_seconds` is the rule's limit, if the models at the head of the order are expected to meet it.
    `attempts_before` counts attempts made before this order was tried, when an answer was escalated to it.
    """

    decision: Decision
    order: tuple[Candidate, ...]
    weighed: tuple[Ranked, ...]
    first_token_seconds: float | None = None
    escalation: Escalation | None = None
    attempts_before: int = 0


def deciding_tags(snapshot: Snapshot) -> frozenset[str]:
    """The tags that decisions under this snapshot may depend on."""
    return snapshot.named["tags"] | {SIMULATE_TAG}


def decide(request: RequestFacts, snapshot: Snapshot) -> Choice:
    """Choose. Raises ModelNotFound, ContextTooLong or NoEligibleModel; never anything else."""
    rule = rule_of(request, snapshot) if request.requested_model in snapshot.routed_names else None
    if rule is None:
        return _decide_direct(request, snapshot)
    choose = rule.choose
    pool = _pool(choose.from_, request, snapshot)
    weighed = _weigh(pool, request)
    able = [ranked for ranked in weighed if ranked.rejected is None]
    if not able:
        if rule.cascade is not None:
            return _escalated_at_once(request, rule, rule.cascade, weighed, snapshot)
        if not pool:
            _refuse_without_pool(request, rule, snapshot)
        _refuse(request, rule.name, weighed)
    kept = apply_quality_shares(able, apply_limits(able, choose), rule, request.facts)
    if not kept and choose.if_none == "refuse":
        _refuse(request, rule.name, [with_limit_reason(ranked, choose) for ranked in weighed])
    ordered, equals = with_load_shared(in_order(kept, choose, request), choose, request.facts) if kept else ([], 1)
    ordered = ordered or beyond_limits(able, choose)
    preferred = chosen = ordered[0]
    propensity = 1.0 / equals
    if choose.explore:
        reach = within_reach(able, kept, rule, request.facts)
        chosen, ordered, propensity = explore(ordered, equals, reach, rule, request.facts)
    if len(ordered) < len(able):
        ordered = [*ordered, *beyond_limits(_dropped(able, ordered), choose)]
    choice = _choice(request, snapshot, rule.name, chosen, ordered, weighed, propensity)
    if chosen is not preferred and chosen.expected_cost_pico_usd is not None:
        more = msgspec.structs.replace(choice.decision, exploration_pico_usd=extra_cost(chosen, preferred))
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
"""Each condition of `When`, with its test."""


def matches(when: When | None, request: RequestFacts) -> bool:
    """Whether all conditions hold."""
    if when is not None:
        for name, given in when.conditions.items():
            if not HOLDS[name](given, request):
                return False
    return True


def _cascaded(choice: Choice, cascade: Cascade, request: RequestFacts, snapshot: Snapshot) -> Choice:
    """Adds the models to escalate to. Answers that cannot be verified, streams above all, go to them at once. The
    choice stays as it is if none of them can serve, or if one was chosen anyway."""
    pool = _pool(cascade.escalate_to, request, snapshot)
    weighed = _weigh(pool, request)
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
    """None of the rule's models can serve: uses those its answer would be escalated to. Raises as `decide`."""
    strong = _weigh(_pool(cascade.escalate_to, request, snapshot), request)
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
    [ranked] = _weigh([candidate], request)
    if ranked.rejected is not None:
        _refuse(request, DIRECT, [ranked])
    return _choice(request, snapshot, DIRECT, ranked, [ranked], [ranked], 1.0)


def _pool(named: list[str] | str, request: RequestFacts, snapshot: Snapshot) -> list[Candidate]:
    """Those of the named models that the key may use. `any`, `hosted` and `local` include only models made for the
    operation: no chat is sent to an embedding model."""
    candidates = snapshot.candidates
    if isinstance(named, list):  # a model's backend may be switched off
        return [candidates[name] for name in named if name in candidates and _is_allowed(candidates[name], request)]
    wanted, is_simulation = SPECIALTIES.get(request.operation), SIMULATE_TAG in request.tags
    fitting = [
        one for one in candidates.values() if one.specialty == wanted and (is_simulation or not one.is_simulated)
    ]
    if (allowed := request.allowed_models) is not None:
        fitting = [one for one in fitting if one.name in allowed]
    return fitting if named == "any" else [one for one in fitting if one.is_local == (named == "local")]


def _is_allowed(candidate: Candidate, request: RequestFacts) -> bool:
    """Applies the key's own list; simulated models answer only requests with the simulation tag."""
    if candidate.is_simulated and SIMULATE_TAG not in request.tags:
        return False
    return request.allowed_models is None or candidate.name in request.allowed_models


def _weigh(pool: list[Candidate], request: RequestFacts) -> list[Ranked]:
    """Each model's figures, and why it cannot serve, if so. What is the same for all is read once, since there may be
    hundreds."""
    facts, wanted = request.facts, SPECIALTIES.get(request.operation)
    costs, qualities = expected_costs(facts, pool), facts.qualities_of([one.name for one in pool])
    needs, states, window_tokens = facts.needs, facts.backend_state, facts.window_tokens
    least_window = 0 if wanted in READ_APART else window_tokens + (facts.max_output_tokens or 1)
    weighed: list[Ranked] = []
    for candidate, cost, quality in zip(pool, costs, qualities, strict=True):
        rejected = None
        if (specialty := candidate.specialty) != wanted and (
            specialty is not None or wanted != EMBEDDINGS  # a server may offer embeddings from a text model
        ):
            rejected = f"{LACKS} {request.operation}: {other_use(specialty)}"
        elif not candidate.supports.issuperset(needs):
            rejected = f"{LACKS} {', '.join(sorted(set(needs) - candidate.supports))}"
        elif candidate.context_window < least_window:
            asked = f" + {facts.max_output_tokens:,} asked for" if facts.max_output_tokens else ""
            rejected = f"about {window_tokens:,} tokens{asked} {TOO_LONG} of {candidate.context_window:,}"
        elif states and (slots := states.get(candidate.name, (0, 0.0))[0]) < 0:
            rejected = DOWN_BECAUSE.get(slots, "its backend is down")
        if candidate.speed is None and not states:
            seconds = candidate.typical_time_to_first_token_seconds
        else:
            seconds = expected_time_to_first_token_seconds(facts, candidate)
        weighed.append(Ranked(candidate, cost, quality, seconds, rejected))
    return weighed


def options(request: RequestFacts, rule: Rule, snapshot: Snapshot) -> tuple[float, list[Ranked]]:
    """The best quality available under the rule, and its candidates in order if any loss of quality were allowed."""
    pool = _pool(rule.choose.from_, request, snapshot)
    able = [ranked for ranked in _weigh(pool, request) if ranked.rejected is None]
    kept = apply_limits(able, rule.choose)
    return best_quality(able), in_order(kept, rule.choose, request)


def rule_of(request: RequestFacts, snapshot: Snapshot) -> Rule | None:
    """The first rule whose conditions all hold. The last rule has none, so every request for `auto` finds one; a
    request that names a model matches only rules that name it.

    Rules that name others are put aside once for all requests alike in names, so that hundreds of rules, one a team,
    cost each request little.
    """
    kind = _kind(request, snapshot)
    rules = snapshot.rules_by_kind.get(kind)
    if rules is None:
        if len(snapshot.rules_by_kind) >= MOST_KINDS:
            snapshot.rules_by_kind.clear()
        rules = snapshot.rules_by_kind[kind] = tuple([rule for rule in snapshot.rules if _names(rule.when, request)])
    for rule in rules:
        if matches(rule.when, request):
            return rule
    return None


def _kind(request: RequestFacts, snapshot: Snapshot) -> Kind:
    named = snapshot.named
    return (
        named["tags"].intersection(request.tags),
        request.team if request.team in named["team"] else None,
        request.project if request.project in named["project"] else None,
        request.key_id if request.key_id in named["key"] else None,
        request.operation if request.operation in named["operation"] else None,
        request.requested_model if request.requested_model in snapshot.routed_names else None,
    )


def _names(when: When | None, request: RequestFacts) -> bool:
    """Whether the rule names this request, or nobody."""
    given = {} if when is None else when.conditions
    if request.requested_model != AUTO and "model" not in given:
        return False
    return all(HOLDS[name](given[name], request) for name in NAMES if name in given)


def _dropped(able: list[Ranked], ordered: list[Ranked]) -> list[Ranked]:
    placed = {ranked.candidate.name for ranked in ordered}
    return [ranked for ranked in able if ranked.candidate.name not in placed]


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
