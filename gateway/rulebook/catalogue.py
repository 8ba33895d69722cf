"""The catalogue: combines rules, environment, prices and engine speed into an immutable Snapshot. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from classifier.protocol import ModelProfile
from gateway.errors import ConfigurationError
from gateway.pricing.catalogue import FOR_EVER_US, ModelPrices, PriceBook
from gateway.routing.rules import ModelSpec, RulesDocument
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import ON_DEMAND, CacheWrites, Candidate, EngineSpeed, Snapshot
from gateway.yaml_document import parse_yaml

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What the catalogue must know about a configured backend. `speed` is set for our own engines.

    `is_engine`: it is known to be an inference engine, priced by its time or not. `marks_prompts`: we mark prompts for
    its cache if callers do not. `least_cached_tokens`: the shortest cached prompt; exceptions by upstream model are in
    `least_cached_tokens_of`. `asked_tier`: the service tier that its configuration asks for, whatever callers do.
    """

    provider: str
    is_simulated: bool = False
    speed: EngineSpeed | None = None
    is_engine: bool = False
    marks_prompts: bool = False
    least_cached_tokens: int = 1024
    least_cached_tokens_of: Mapping[str, int] = field(default_factory=dict[str, int])
    asked_tier: str | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What stays fixed between changes of the configuration: the models that rules may name, and their backends.

    Models of `switched_off` backends may be named but are not available.
    """

    backends: Mapping[str, BackendFacts]
    environment_models: Mapping[str, ModelSpec]
    switched_off: frozenset[str] = frozenset()

    def parse(self, text: str, *, file: str) -> RulesDocument:
        """Parses a rules file with this deployment's models. Raises ConfigurationError."""
        document = parse_rules(text, file=file, known_models=frozenset(self.environment_models))
        for name, spec in document.models.items():
            if spec.backend not in self.backends and spec.backend not in self.switched_off:
                known = ", ".join(sorted(self.backends))
                raise ConfigurationError(
                    f"the model {name!r} names the backend {spec.backend!r}; known: {known}. A new one in "
                    "breakeven.yaml is known after a restart",
                    file=file,
                    line=parse_yaml(text, file=file).line(("models", name, "backend")),
                    field="models",
                )
        return document

    def models(self, document: RulesDocument) -> dict[str, ModelSpec]:
        """Every available model by name; the file's own take precedence over the environment's."""
        all_models = {**self.environment_models, **document.models}
        return {name: spec for name, spec in all_models.items() if spec.backend in self.backends}

    def snapshot(
        self,
        document: RulesDocument,
        prices: PriceBook,
        *,
        classifier_version: str,
        at_us: int,
        text_version: str = "",
    ) -> Snapshot:
        """Everything `decide()` needs, with the prices in force at `at_us`.

        The rules version is `text_version`, if stored under one, plus a hash of what the rules amount to here: the same
        text has a different meaning when a provider's key is added or removed.
        """
        models = self.models(document)
        candidates = {name: self._candidate(name, spec, prices, at_us) for name, spec in models.items()}
        held = (prices.holds_until_us(*self._priced_as(spec), at_us) for spec in models.values())
        return Snapshot(
            rules=tuple(document.rules),
            candidates=candidates,
            rules_version="-".join(part for part in (text_version, rules_version(document, models)) if part),
            prices_version=prices.version,
            classifier_version=classifier_version,
            prices_at_us=at_us,
            prices_until_us=min(held, default=FOR_EVER_US),
        )

    def _candidate(self, name: str, spec: ModelSpec, prices: PriceBook, at_us: int) -> Candidate:
        backend = self.backends[spec.backend]
        known = None if backend.speed is not None else prices.lookup(*self._priced_as(spec), at_us)
        return Candidate(
            name=name,
            backend=spec.backend,
            provider=backend.provider,
            upstream_model=spec.upstream_model,
            context_window=spec.context_window,
            supports=frozenset(spec.supports),
            is_local=backend.speed is not None,
            is_simulated=backend.is_simulated,
            prices=known,
            speed=backend.speed,
            cache_writes=self._cache_writes(spec, known),
            priced_as=spec.priced_as,
            takes_salt=backend.is_engine or backend.speed is not None,
            asked_tier=backend.asked_tier,
        )

    def _cache_writes(self, spec: ModelSpec, prices: ModelPrices | None) -> CacheWrites:
        """Only OpenAI writes automatically at a separate price, which its models before GPT-5.6 do not have."""
        backend, (provider, model) = self.backends[spec.backend], self._priced_as(spec)
        if prices is None or prices.rates.cache_write_5m is None or backend.is_simulated:
            return ON_DEMAND
        if provider == "openai" or model.startswith("openai/"):
            return CacheWrites("provider", backend.least_cached_tokens)
        if not backend.marks_prompts:
            return ON_DEMAND
        return CacheWrites(
            "gateway", backend.least_cached_tokens_of.get(spec.upstream_model, backend.least_cached_tokens)
        )

    def _priced_as(self, spec: ModelSpec) -> tuple[str, str]:
        """Provider and model in the price list."""
        name = spec.priced_as or f"{self.backends[spec.backend].provider}/{spec.upstream_model}"
        provider, _, model = name.partition("/")
        return provider, model


def profiles(models: Mapping[str, ModelSpec]) -> Sequence[ModelProfile]:
    """What the classifier is told about each model that writes text."""
    return [
        ModelProfile(name, spec.head, spec.benchmarks, spec.ability, spec.upstream_model)
        for name, spec in sorted(models.items())
        if spec.specialty is None
    ]


def rules_version(document: RulesDocument, models: Mapping[str, ModelSpec]) -> str:
    """Content hash of the rules and of every model they may choose; comments and key order do not matter."""
    content = {
        "rules": [rule.model_dump(mode="json", by_alias=True) for rule in document.rules],
        "models": {name: spec.model_dump(mode="json") for name, spec in sorted(models.items())},
    }
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
