"""The decision: from a request and a snapshot to an order of models with reasons. Deterministic."""

from typing import NoReturn

import msgspec

from gateway.errors import ModelNotFound, NoCapableModel
from gateway.ledger.entry import Decision
from gateway.routing.plans import SIMULATE_TAG, is_allowed, plan_of, pool_of
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
from gateway.routing.refusals import none_does, refusal, refusal_without_candidates
from gateway.routing.rules import AUTO, CASCADED, SPECIALTIES, Cascade, Rule, Verify
from gateway.routing.snapshot import Candidate, RequestFacts, Snapshot
from gateway.routing.weighing import weigh

DIRECT = "(direct)"
"""Stands for the rule's name when the request named its model and no rule routes that name."""


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
    plan = plan_of(request, snapshot) if request.requested_model in snapshot.routed_names else None
    if plan is None:
        return _decide_direct(request, snapshot)
    rule, terms, facts = plan.rule, plan.terms, request.facts
    pool = pool_of(terms.from_, request, snapshot)
    weighed = weigh(pool, request)
    able = [ranked for ranked in weighed if ranked.rejected is None]
    if not able:
        if terms.cascade is not None:
            return _escalated_at_once(request, rule, terms.cascade, weighed, snapshot)
        if not pool.models:
            _refuse_without_pool(request, rule, snapshot)
        _refuse(request, terms.name, weighed)
    kept = able if terms.keeps_all else apply_quality_shares(able, apply_limits(able, rule.choose), rule, facts)
    if not kept and rule.choose.if_none == "refuse":
        _refuse(request, terms.name, [with_limit_reason(ranked, rule.choose) for ranked in weighed])
    ordered, equals = with_load_shared(in_order(kept, terms, facts), terms, facts) if kept else ([], 1)
    ordered = ordered or beyond_limits(able, rule.choose)
    preferred = chosen = ordered[0]
    propensity = 1.0 / equals
    if terms.explore:
        reach = within_reach(able, kept, rule, facts)
        chosen, ordered, propensity = explore(ordered, equals, reach, rule, facts)
    if len(ordered) < len(able):
        ordered = [*ordered, *beyond_limits(_dropped(able, ordered), rule.choose)]
    choice = _choice(request, snapshot, terms.name, chosen, ordered, weighed, pool.names, propensity)
    if chosen is not preferred and chosen.expected_cost_pico_usd is not None:
        more = msgspec.structs.replace(choice.decision, exploration_pico_usd=extra_cost(chosen, preferred))
        choice = msgspec.structs.replace(choice, decision=more)
    if kept and terms.first_token_seconds is not None:
        choice = msgspec.structs.replace(choice, first_token_seconds=terms.first_token_seconds)
    return choice if terms.cascade is None else _cascaded(choice, terms.cascade, request, snapshot)


def _cascaded(choice: Choice, cascade: Cascade, request: RequestFacts, snapshot: Snapshot) -> Choice:
    """Adds the models to escalate to. Answers that cannot be verified, streams above all, go to them at once. The
    choice stays as it is if none of them can serve, or if one was chosen anyway."""
    weighed = weigh(pool_of(tuple(cascade.escalate_to), request, snapshot), request)
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
    rule, names = choice.decision.rule, _names_of(everything)
    return _choice(request, snapshot, rule, able[0], [*able, *spare], everything, names, 1.0)


def _escalated_at_once(
    request: RequestFacts, rule: Rule, cascade: Cascade, weighed: list[Ranked], snapshot: Snapshot
) -> Choice:
    """None of the rule's models can serve: uses those its answer would be escalated to. Raises as `decide`."""
    strong = weigh(pool_of(tuple(cascade.escalate_to), request, snapshot), request)
    known = {ranked.candidate.name for ranked in weighed}
    everything = [*weighed, *(one for one in strong if one.candidate.name not in known)]
    able = [ranked for ranked in strong if ranked.rejected is None]
    if not everything:
        _refuse_without_pool(request, rule, snapshot)
    if not able:
        _refuse(request, rule.name, everything)
    return _choice(request, snapshot, rule.name, able[0], able, everything, _names_of(everything), 1.0)


def _decide_direct(request: RequestFacts, snapshot: Snapshot) -> Choice:
    candidate = snapshot.candidates.get(request.requested_model)
    if candidate is None or not is_allowed(candidate, request):
        known = {name for name, other in snapshot.candidates.items() if is_allowed(other, request)}
        raise ModelNotFound(request.requested_model, sorted(known | snapshot.routed_names - {AUTO}))
    pool = pool_of((candidate.name,), request, snapshot)
    [ranked] = weigh(pool, request)
    if ranked.rejected is not None:
        _refuse(request, DIRECT, [ranked])
    return _choice(request, snapshot, DIRECT, ranked, [ranked], [ranked], pool.names, 1.0)


def options(request: RequestFacts, rule: Rule, snapshot: Snapshot) -> tuple[float, list[Ranked]]:
    """The best quality available under the rule, and its candidates in order if any loss of quality were allowed."""
    pool = pool_of(rule.terms.from_, request, snapshot)
    able = [ranked for ranked in weigh(pool, request) if ranked.rejected is None]
    kept = apply_limits(able, rule.choose)
    return best_quality(able), in_order(kept, rule.terms, request.facts)


def _names_of(weighed: list[Ranked]) -> tuple[str, ...]:
    return tuple([ranked.candidate.name for ranked in weighed])


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
    names: tuple[str, ...],
    propensity: float,
) -> Choice:
    decision = Decision(
        rule=rule,
        model=chosen.candidate.name,
        candidates=names,
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
    offered = list(pool_of(rule.terms.from_, anybodys, snapshot).names)
    if not offered and (wanted := SPECIALTIES.get(request.operation)) is not None:
        raise NoCapableModel(rule.name, {}, why_none=none_does(wanted))
    raise refusal_without_candidates(rule.name, offered, request.allowed_models, snapshot.candidates)
