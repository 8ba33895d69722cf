"""Translates a LiteLLM configuration into ours: backends, models, rules, limits and prices. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from gateway.config.providers import HostedProvider
from gateway.errors import ConfigurationError
from gateway.from_litellm.config_file import Deployment, Fields, LiteLLMConfig
from gateway.from_litellm.endpoints import Endpoints, Place
from gateway.from_litellm.rows import whole
from gateway.from_litellm.windows import PLACES
from gateway.limits.values import MOST_COUNT
from gateway.routing.rules import RERANK
from gateway.yaml_document import NAME_PATTERN

MODES: Final = {
    "embedding": "embeddings",
    "image_generation": "images",
    "image_edit": "images",
    "audio_speech": "speech",
    "audio_transcription": "transcription",
    "moderation": "moderation",
    "rerank": RERANK,
}
BY_NAME: Final = {
    "dall-e": "image_generation",
    "gpt-image": "image_generation",
    "tts-": "audio_speech",
    "whisper": "audio_transcription",
    "embed": "embedding",
    "moderation": "moderation",
    "rerank": "rerank",
}
"""A model's mode by a part of its name, if nothing else says it."""
CHATS: Final = ("chat", "completion", "responses", "")
ABILITIES: Final = {
    "supports_vision": "vision",
    "supports_reasoning": "reasoning",
    "supports_audio_input": "audio",
}
ASSUMED: Final = ("streaming", "tools", "json_schema")
UNKNOWN_WINDOW: Final = 128_000
NO_WINDOW: Final = 1_000_000
"""For modes that state no context window, such as images and speech: large enough to refuse nothing."""
PRICES: Final = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write_5m",
}
PER_SEARCH: Final = "input_cost_per_query"
LIMITS: Final = {
    "rpm": "requests_per_minute",
    "tpm": "tokens_per_minute",
    "max_parallel_requests": "max_parallel_requests",
}
MOST_ATTEMPTS: Final = 10
LONGEST_NAME: Final = 70
LONGEST_OF_ALL: Final = 120
"""Including `@` and what tells several models of one name apart."""
LAST_RULE: Final = {"choose": {"from": "any", "by": "expected_cost", "min_quality": 0.6}}
RESERVED: Final = frozenset({"auto", "any", "hosted", "local"})


@dataclass(slots=True)
class Draft:
    """`settings` is breakeven.yaml and `rules` rules.yaml, as plain values; `overrides` are prices that the catalogue
    lacks. `variables` are to be set before the start, each with its purpose; `unsure` are models whose context window
    is a guess, `unpriced` those without a known price."""

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    rules: dict[str, Any] = field(default_factory=dict[str, Any])
    overrides: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    unsure: list[str] = field(default_factory=list[str])
    unpriced: list[str] = field(default_factory=list[str])
    needs_litellm: bool = False
    notes: list[str] = field(default_factory=list[str])


def draft(
    config: LiteLLMConfig,
    *,
    providers: Sequence[HostedProvider],
    environ: Mapping[str, str],
    price_of: Callable[[str], bool],
    known: Mapping[str, Fields],
    since: str,
    file: str = "config.yaml",
) -> Draft:
    """`price_of` says whether the catalogue has a price of that name; `known` is LiteLLM's map of models, empty if not
    installed; `since` is the day from which the file's own prices hold. Raises ConfigurationError."""
    made = Draft(notes=list(config.notes))
    shipped = {one.price_name: one for one in providers}
    endpoints = Endpoints(shipped, environ, lambda one: _mode(one, known) == RERANK)
    models = _Models(made, endpoints, price_of, known, since)
    members = {name: models.add(name, group) for name, group in _by_name(config.deployments, made.notes).items()}
    members = {name: found for name, found in members.items() if found}
    if endpoints.missing:
        missing = "; ".join(f"{variable} ({what})" for variable, what in endpoints.missing.items())
        raise ConfigurationError(f"names variables that are not set here: {missing}. Set them and try again", file=file)
    last = {"name": "default" if "default" not in members else "everything-else", **LAST_RULE}
    made.rules = {"version": 1, "models": models.specs, "rules": [*_rules(config, members, made.notes), last]}
    made.notes += endpoints.notes
    made.variables = endpoints.variables
    made.needs_litellm = any("litellm" in block for block in endpoints.blocks.values())
    made.settings = _settings(endpoints, models.limits, has_prices=bool(made.overrides))
    if config.retries is not None:
        # LiteLLM's retries are per model, before its fallbacks; here the attempts at all models count together.
        most_models = max((len(rule["choose"]["from"]) for rule in made.rules["rules"][:-1]), default=1)
        made.settings["fallback"] = {"max_attempts": min(max(config.retries, 0) + most_models, MOST_ATTEMPTS)}
    return made


def _settings(endpoints: Endpoints, limits: Mapping[str, Any], *, has_prices: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"engine": {"is_enabled": False}, "simulated_hosted": "never"}
    if endpoints.blocks:
        settings["backends"] = endpoints.blocks
    if limits:
        settings["limits"] = {"models": dict(limits)}
    if has_prices:
        settings["price_overrides"] = ["prices.yaml"]
    return settings


def _by_name(deployments: Iterable[Deployment], notes: list[str]) -> dict[str, list[Deployment]]:
    found: dict[str, list[Deployment]] = {}
    for one in deployments:
        if re.match(NAME_PATTERN, one.name) and one.name not in RESERVED and len(one.name) <= LONGEST_NAME:
            found.setdefault(one.name, []).append(one)
        else:
            notes.append(
                f"{one.where} is not a valid model name here; give it one of letters, digits and . _ : / @ -, at most "
                f"{LONGEST_NAME} of them, that is not one of {', '.join(sorted(RESERVED))}"
            )
    return found


@dataclass(slots=True)
class _Models:
    """Fills `specs` (for `models:` of the rules) and `limits` from the deployments."""

    made: Draft
    endpoints: Endpoints
    price_of: Callable[[str], bool]
    known: Mapping[str, Fields]
    since: str
    specs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    limits: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def add(self, name: str, deployments: Sequence[Deployment]) -> list[str]:
        """The names of the models made for `name`: `name` itself, or if there are several, `name@BACKEND` of each, or
        `name@UPSTREAM_MODEL` where two share a backend."""
        groups: dict[tuple[object, ...], list[Deployment]] = {}
        for one in sorted(deployments, key=_order):
            self.endpoints.look(one)
            if not self.endpoints.has_address(one):
                self.made.notes.append(
                    f"{one.where} is left out: it does not say where {one.provider} listens (api_base)"
                )
                continue
            if (mode := self._mode(one)) == RERANK and not self.endpoints.can_rank(one):
                self.made.notes.append(
                    f"{one.where} is for rerank, which nobody is asked for through litellm: name another provider's, "
                    "or a server's address (docs/api.md#rerank)"
                )
            elif mode in CHATS or mode in MODES:
                groups.setdefault(self.endpoints.same(one), []).append(one)
            else:
                self.made.notes.append(f"{one.where} is for {mode}, which is not served here")
        places = [self.endpoints.place(group) for group in groups.values()]
        behind = [place.backend for place in places]
        if len(set(behind)) < len(behind):
            behind = [place.upstream_model.replace(" ", "-") for place in places]
        found: list[str] = []
        for place, group, part in zip(places, groups.values(), behind, strict=True):
            own = name if len(places) == 1 else f"{name}@{part}"[:LONGEST_OF_ALL]
            own = own if own not in found else f"{own[: LONGEST_OF_ALL - 3]}-{len(found) + 1}"
            found.append(own)
            self._describe(own, place, group)
        return found

    def _mode(self, deployment: Deployment) -> str:
        return _mode(deployment, self.known)

    def _describe(self, name: str, place: Place, group: Sequence[Deployment]) -> None:
        first = group[0]
        self._limit(name, group)
        shipped = self._shipped(place)
        if shipped == name:  # comes with its provider's key
            self._price(name, first, place, {})
            return
        spec: dict[str, Any] = {"backend": place.backend, "upstream_model": place.upstream_model}
        if (priced_as := self._priced_as(first, place)) is not None:
            spec["priced_as"] = priced_as
        spec["context_window"] = self._window(name, first)
        spec["supports"] = self._supports(first)
        self.specs[name] = spec
        self._price(name, first, place, spec)

    def _price(self, name: str, deployment: Deployment, place: Place, spec: dict[str, Any]) -> None:
        """The file's price, or else the catalogue's, or else that of LiteLLM's map."""
        written = {**deployment.info, **deployment.params}
        own, source = _prices(written), "LiteLLM's config.yaml"
        for theirs in (*PRICES, PER_SEARCH):
            if written.get(theirs) is not None and _amount(written[theirs]) is None:
                self.made.notes.append(
                    f"{deployment.where}: its {theirs} is left out: {written[theirs]} is not a price of at least 0 and "
                    "less than one dollar"
                )
        provider = self._price_provider(place.backend)
        if not own and self.price_of(str(spec.get("priced_as", f"{provider}/{place.upstream_model}"))):
            return
        if not own:
            told = {theirs: self._fact(deployment, theirs) for theirs in (*PRICES, PER_SEARCH)}
            own, source = _prices(told), "LiteLLM's map"
        if not own:
            self.made.unpriced.append(name)
            return
        spec.pop("priced_as", None)
        prices = [{"from": self.since, "source": source, **own}]
        override = {"provider": provider, "model": place.upstream_model, "prices": prices}
        of_the_same = (one for one in self.made.overrides if one["provider"] == provider)
        there = next((one for one in of_the_same if one["model"] == place.upstream_model), None)
        if there is None:
            self.made.overrides.append(override)
        elif there != override:
            self.made.notes.append(f"{deployment.where}: its price is left out: the file gives this model two")

    def _price_provider(self, backend: str) -> str:
        """The provider under whose name its models' prices are looked up."""
        block = self.endpoints.blocks.get(backend)
        if block is not None:
            return str(block.get("provider", backend))
        return next(one.price_name for one in self.endpoints.shipped.values() if one.name == backend)

    def _shipped(self, place: Place) -> str | None:
        """The name under which Breakeven adds this model by itself when the provider's key is set, if it does."""
        for provider in self.endpoints.shipped.values():
            if provider.name == place.backend:
                return next((one.name for one in provider.models if one.upstream_model == place.upstream_model), None)
        return None

    def _fact(self, deployment: Deployment, field_name: str) -> Any:
        return _fact(deployment, self.known, field_name)

    def _window(self, name: str, deployment: Deployment) -> int:
        window = self._fact(deployment, "max_input_tokens") or self._fact(deployment, "max_tokens")
        if isinstance(window, int) and window > 0:
            return window
        if (hosted := self._hosted(deployment)) is not None:
            return hosted.context_window
        if self._mode(deployment) not in (*CHATS, "embedding"):
            return NO_WINDOW
        self.made.unsure.append(name)
        return UNKNOWN_WINDOW

    def _hosted(self, deployment: Deployment) -> Any:
        provider = self.endpoints.shipped.get(deployment.provider)
        models = provider.models if provider is not None else ()
        return next((one for one in models if one.upstream_model == deployment.model), None)

    def _supports(self, deployment: Deployment) -> list[str]:
        if (mode := self._mode(deployment)) in MODES:
            return [MODES[mode]]
        if (hosted := self._hosted(deployment)) is not None:
            return list(hosted.supports)
        return [*ASSUMED, *(ability for name, ability in ABILITIES.items() if self._fact(deployment, name) is True)]

    def _priced_as(self, deployment: Deployment, place: Place) -> str | None:
        base = str(deployment.info.get("base_model") or "")
        names = [base, f"openai/{base.rpartition('/')[2]}", f"anthropic/{base.rpartition('/')[2]}"] if base else []
        return next((one for one in names if self.price_of(one)), place.priced_as)

    def _limit(self, name: str, group: Sequence[Deployment]) -> None:
        """The sum over all deployments; no limit if one of them has none."""
        for theirs, ours in LIMITS.items():
            limits = [one.params.get(theirs) for one in group]
            found = [one for one in map(whole, limits) if one is not None and one > 0]
            if found and len(found) == len(limits):
                self.limits.setdefault(name, {})[ours] = min(sum(found), MOST_COUNT)


def _mode(deployment: Deployment, known: Mapping[str, Fields]) -> str:
    name = deployment.model.lower()
    by_name = next((mode for part, mode in BY_NAME.items() if part in name), "")
    return str(_fact(deployment, known, "mode") or by_name)


def _fact(deployment: Deployment, known: Mapping[str, Fields], field_name: str) -> Any:
    """From the file, or else from LiteLLM's map."""
    given = deployment.info.get(field_name, deployment.params.get(field_name))
    if given is not None:
        return given
    names = (deployment.info.get("base_model"), deployment.litellm_model, deployment.model)
    found = next((known[str(one)] for one in names if one and str(one) in known), {})
    return found.get(field_name)


def _prices(given: Fields) -> dict[str, Any]:
    """US dollars per million tokens, or per search. Empty unless both input and output have a price."""
    found = {ours: amount for theirs, ours in PRICES.items() if (amount := _amount(given.get(theirs))) is not None}
    if (per_search := _amount(given.get(PER_SEARCH))) and not any(found.values()):
        return {"input": 0, "output": 0, "per_search_unit_usd": _plain(per_search)}
    if not {"input", "output"} <= found.keys():
        return {}
    return {name: _plain(amount * 1_000_000) for name, amount in found.items()}


def _amount(value: object) -> Decimal | None:
    """To the pico-dollar; None if it is no price. Text is one too: YAML reads `1e-6` as text, and LiteLLM converts
    it."""
    try:
        amount = Decimal(str(value)).quantize(PLACES)
        return amount if 0 <= amount < 1 else None
    except InvalidOperation:
        return None


def _order(deployment: Deployment) -> int:
    """LiteLLM asks the lowest first."""
    order = deployment.params.get("order")
    return order if isinstance(order, int) else 0


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _rules(config: LiteLLMConfig, members: Mapping[str, Sequence[str]], notes: list[str]) -> list[dict[str, Any]]:
    """One for each name that stands for several models, or has fallbacks or aliases."""
    named: dict[str, list[str]] = {}
    for alias, name in config.aliases.items():
        if alias == name:
            continue
        if alias in members:
            notes.append(f"router_settings.model_group_alias: {alias} is a model of its own, and stays one")
        elif name in members and re.match(NAME_PATTERN, alias) and alias not in RESERVED:
            named.setdefault(name, []).append(alias)
        else:
            notes.append(f"router_settings.model_group_alias: {alias} stands for {name}, which is not in the result")
    rules: list[dict[str, Any]] = []
    for name, own in members.items():
        others: list[str] = []
        for other in config.fallbacks.get(name, ()):
            if other not in members:
                notes.append(f"the fallback of {name} to {other} is left out: {other} is not in the result")
            others += [model for model in members.get(other, ()) if model not in own and model not in others]
        aliases = named.get(name, [])
        if len(own) == 1 and not others and not aliases:
            continue
        by = "order" if others or name in config.ordered else "expected_cost"
        rules.append({"name": name, "when": {"model": [name, *aliases]}, "choose": {"from": [*own, *others], "by": by}})
        if len(own) > 1 and others:
            notes.append(
                f"{name}: its models are asked in their order, the next one when the one before cannot answer; without "
                "fallbacks those at one price would share the load"
            )
    return rules
