"""Which rule a request meets, and which models may answer it: found out once for requests alike. Deterministic."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.routing.refusals import LACKS, other_use
from gateway.routing.rules import AUTO, EMBEDDINGS, SPECIALTIES, Rule, Specialty, When
from gateway.routing.snapshot import NAMES, Candidate, Kind, Plan, Pool, RequestFacts, Snapshot

SIMULATE_TAG = "simulate-hosted"
MOST_KINDS, MOST_POOLS = 10_000, 4_000
"""Of requests and of what they may choose among, remembered under one snapshot."""

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


def rule_of(request: RequestFacts, snapshot: Snapshot) -> Rule | None:
    """The first rule whose conditions all hold. The last rule has none, so every request for `auto` finds one; a
    request that names a model matches only rules that name it."""
    plan = plan_of(request, snapshot)
    return None if plan is None else plan.rule


def plan_of(request: RequestFacts, snapshot: Snapshot) -> Plan | None:
    """Rules that name others are put aside once for all requests alike in names, so that hundreds of rules, one a team,
    cost each request little."""
    kind = _kind(request, snapshot)
    plans = snapshot.plans_by_kind.get(kind)
    if plans is None:
        if len(snapshot.plans_by_kind) >= MOST_KINDS:
            snapshot.plans_by_kind.clear()
        named = [rule for rule in snapshot.rules if _names(rule.when, request)]
        plans = snapshot.plans_by_kind[kind] = tuple([_plan(rule, snapshot) for rule in named])
    for plan in plans:
        for holds, given in plan.tests:
            if not holds(given, request):
                break
        else:
            return plan
    return None


def _plan(rule: Rule, snapshot: Snapshot) -> Plan:
    """The same for all kinds of requests."""
    plan = snapshot.plans.get(rule.name)
    if plan is None:
        conditions = {} if rule.when is None else rule.when.conditions
        tests = [(HOLDS[name], given) for name, given in conditions.items() if name not in NAMES]
        plan = snapshot.plans[rule.name] = Plan(rule, rule.terms, tuple(tests))
    return plan


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


def pool_of(named: tuple[str, ...] | str, request: RequestFacts, snapshot: Snapshot) -> Pool:
    """Those of the named models that the key may use. `any`, `hosted` and `local` include only models made for the
    operation: no chat is sent to an embedding model."""
    key = (named, request.allowed_models, request.operation, request.facts.needs, SIMULATE_TAG in request.tags)
    pool = snapshot.pools.get(key)
    if pool is None:
        if len(snapshot.pools) >= MOST_POOLS:
            snapshot.pools.clear()
        pool = snapshot.pools[key] = _pool(named, request, snapshot.candidates)
    return pool


def _pool(named: tuple[str, ...] | str, request: RequestFacts, known: Mapping[str, Candidate]) -> Pool:
    wanted = SPECIALTIES.get(request.operation)
    models = tuple(_models(named, wanted, request, known))
    unfit = tuple([_unfit(one, wanted, request) for one in models])
    windows = [one.context_window for one, why in zip(models, unfit, strict=True) if why is None]
    return Pool(models, tuple([one.name for one in models]), unfit, min(windows, default=0))


def _unfit(candidate: Candidate, wanted: Specialty | None, request: RequestFacts) -> str | None:
    if (specialty := candidate.specialty) != wanted and (
        specialty is not None or wanted != EMBEDDINGS  # a server may offer embeddings from a text model
    ):
        return f"{LACKS} {request.operation}: {other_use(specialty)}"
    lacking = set(request.facts.needs) - candidate.supports
    return f"{LACKS} {', '.join(sorted(lacking))}" if lacking else None


def _models(
    named: tuple[str, ...] | str, wanted: Specialty | None, request: RequestFacts, known: Mapping[str, Candidate]
) -> list[Candidate]:
    if isinstance(named, tuple):  # a model's backend may be switched off
        return [known[name] for name in named if name in known and is_allowed(known[name], request)]
    fitting = [one for one in known.values() if one.specialty == wanted and is_allowed(one, request)]
    return fitting if named == "any" else [one for one in fitting if one.is_local == (named == "local")]


def is_allowed(candidate: Candidate, request: RequestFacts) -> bool:
    """Applies the key's own list; simulated models answer only requests with the simulation tag."""
    if candidate.is_simulated and SIMULATE_TAG not in request.tags:
        return False
    return request.allowed_models is None or candidate.name in request.allowed_models
