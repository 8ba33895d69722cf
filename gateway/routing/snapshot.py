"""What `decide()` needs besides the request: an immutable view of rules, models and prices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any, Final, Literal

import msgspec

from gateway.ledger.entry import Facts, Intent
from gateway.pricing.catalogue import FOR_EVER_US, ModelPrices
from gateway.routing.rules import AUTO, Rule, Specialty, Terms, specialty_of

DOWN_SLOTS = -1
LOADING_SLOTS = -2
REFUSED_SLOTS = -3
PAUSED_SLOTS = -4
"""Values of `Facts.backend_state` in place of free slots: the backend is down, still loading, refuses all our keys, or
asked us to wait."""


NAMES: Final = ("tags", "team", "project", "key", "operation", "model")
"""The conditions that list names of which there are many."""
Kind = tuple[frozenset[str], str | None, str | None, str | None, str | None, str | None]
"""A request's names, without those that no rule gives, in the order of NAMES."""


@dataclass(frozen=True, slots=True)
class EngineSpeed:
    """How a self-hosted engine computes: enough for the GPU-seconds of a request (docs/economics.md).

    `decode_seconds_per_token` is t(N*)/N*: the share of a step that one token of one request takes at the working
    concurrency. `step_seconds` is t(N*), what the caller waits per token.
    """

    prefill_tokens_per_second: float
    decode_seconds_per_token: float
    step_seconds: float
    gpu_hour_pico_usd: int


@dataclass(frozen=True, slots=True)
class CacheWrites:
    """Who causes prompts of at least `least_tokens` to be written to the prompt cache, at the write price: the
    `provider` automatically, the `caller` with marks, or the `gateway` with marks for callers who set none."""

    by: Literal["provider", "caller", "gateway"] = "caller"
    least_tokens: int = 1024


ON_DEMAND: Final = CacheWrites()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One catalogue model as the decision sees it. If `prices` and `speed` are both None, its cost is unknown."""

    name: str
    backend: str
    provider: str
    upstream_model: str
    context_window: int
    supports: frozenset[str]
    is_local: bool
    is_simulated: bool
    prices: ModelPrices | None
    speed: EngineSpeed | None
    typical_time_to_first_token_seconds: float = 0.0
    cache_writes: CacheWrites = ON_DEMAND
    priced_as: str | None = None
    """Its name in the price list, if the rules say that it is another."""
    takes_salt: bool = False
    """Whether it keeps prompts apart by a salt that we add for each tenant."""
    asked_tier: str | None = None
    """The service tier that it is always asked for, instead of the caller's."""
    specialty: Specialty | None = field(init=False)
    """What it does instead of writing text."""
    plain_rates: tuple[int, int, int, float] | None = field(init=False, repr=False, compare=False)
    """Pico-USD per token of input and output and per request, if a text that is nowhere cached costs just that, and
    the most tokens of input for which it does."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "specialty", specialty_of(self.supports))
        object.__setattr__(self, "plain_rates", self._plain_rates())

    def _plain_rates(self) -> tuple[int, int, int, float] | None:
        prices = self.prices
        if prices is None or self.speed is not None or self.asked_tier is not None:
            return None
        if not prices.is_plain or prices.discount or self.cache_writes is not ON_DEMAND:
            return None
        up_to = min((step.above_input_tokens for step in prices.ladder.steps), default=inf)
        return prices.rates.input, prices.rates.output, prices.per_request_pico_usd, up_to


class Plan(msgspec.Struct, frozen=True):
    """A rule, with the tests that requests alike in names have left: each says whether a condition holds for a
    request."""

    rule: Rule
    terms: Terms
    tests: tuple[tuple[Callable[[Any, "RequestFacts"], bool], object], ...]


class Pool(msgspec.Struct, frozen=True):
    """Models that may be chosen among, their names, and of each why it is `unfit` for what is asked, if so. The
    `narrowest_window` is of those that are fit."""

    models: tuple[Candidate, ...]
    names: tuple[str, ...]
    unfit: tuple[str | None, ...]
    narrowest_window: int


PoolKey = tuple[tuple[str, ...] | str, frozenset[str] | None, str, tuple[str, ...], bool]
"""What a rule names, what a key allows, the operation, what it needs, and whether simulated models may answer."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rules and catalogue, one version each; a request is decided and priced under the one it was admitted with.

    Requests from `prices_until_us` on (exclusive) need a newer one, as a price changes then. The same may hold before
    `prices_at_us`, the moment it was made for, after a clock was set back.
    """

    rules: tuple[Rule, ...]
    candidates: Mapping[str, Candidate]
    rules_version: str
    prices_version: str
    classifier_version: str
    prices_at_us: int = 0
    prices_until_us: int = FOR_EVER_US
    named: Mapping[str, frozenset[str]] = field(init=False)
    """By condition, the names that rules give it."""
    plans: dict[str, Plan] = field(init=False, compare=False, repr=False)
    """By the name of a rule, once a request has come that it may take."""
    plans_by_kind: dict[Kind, tuple[Plan, ...]] = field(init=False, compare=False, repr=False)
    """The rules that name requests alike in these names, or nobody, once one has come."""
    pools: dict[PoolKey, Pool] = field(init=False, compare=False, repr=False)
    """Those that a request has asked for."""
    routed_names: frozenset[str] = field(init=False)
    """Names that rules route: `auto`, and those that rules name in `when.model`."""
    cache_seconds: Mapping[str, int] = field(init=False)
    """By the name of a rule whose answers are kept that long."""

    def __post_init__(self) -> None:
        given = [rule.when.conditions for rule in self.rules if rule.when is not None]
        named = {name: frozenset(chain.from_iterable(one.get(name, ()) for one in given)) for name in NAMES}
        object.__setattr__(self, "named", named)
        object.__setattr__(self, "plans", {})
        object.__setattr__(self, "plans_by_kind", {})
        object.__setattr__(self, "pools", {})
        object.__setattr__(self, "routed_names", named["model"] | {AUTO})
        kept = {rule.name: rule.cache_seconds for rule in self.rules if rule.cache_seconds is not None}
        object.__setattr__(self, "cache_seconds", kept)


class RequestFacts(msgspec.Struct, frozen=True):
    """One request as the decision sees it."""

    requested_model: str
    operation: str
    key_id: str
    team: str | None
    project: str | None
    tags: tuple[str, ...]
    allowed_models: frozenset[str] | None
    facts: Facts


def request_facts_of(intent: Intent) -> RequestFacts:
    """The request behind a ledger entry, as it was decided."""
    allowed = intent.allowed_models
    return RequestFacts(
        requested_model=intent.requested_model,
        operation=intent.operation,
        key_id=intent.key_id,
        team=intent.team,
        project=intent.project,
        tags=intent.tags,
        allowed_models=None if allowed is None else frozenset(allowed),
        facts=intent.decision.facts,
    )
