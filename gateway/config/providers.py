"""Hosted providers and their default models, available when a provider's key is in the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from gateway.routing.rules import RERANK, Ability
from gateway.strict import Strict
from gateway.upstreams.warm_prefixes import AUTOMATIC, PromptCache
from gateway.yaml_document import validate_yaml

WireFormat = Literal["openai", "anthropic", "gemini"]
OnDisconnect = Literal["cancel", "drain"]


@dataclass(frozen=True, slots=True)
class HostedModel:
    name: str
    upstream_model: str
    context_window: int
    supports: tuple[Ability, ...]


@dataclass(frozen=True, slots=True)
class HostedProvider:
    """A hosted provider. `price_name` is its name in the price catalogue."""

    name: str
    key_env: str
    base_url: str
    wire_format: WireFormat
    price_name: str
    on_disconnect: OnDisconnect
    models: tuple[HostedModel, ...]
    prompt_cache: PromptCache = AUTOMATIC

    @property
    def only_ranks(self) -> bool:
        """Whether all of its models are for ranking documents."""
        return all(model.supports == (RERANK,) for model in self.models)


class ModelText(Strict):
    upstream_model: str | None = None
    context_window: Annotated[int, Field(ge=1)]
    supports: tuple[Ability, ...]

    def model(self, name: str) -> HostedModel:
        return HostedModel(
            name=name,
            upstream_model=self.upstream_model or name,
            context_window=self.context_window,
            supports=self.supports,
        )


class PromptCacheText(Strict):
    ttl_seconds: Annotated[float, Field(gt=0)] = AUTOMATIC.ttl_seconds
    least_tokens: Annotated[int, Field(ge=1)] = AUTOMATIC.least_tokens
    step_tokens: Annotated[int, Field(ge=1)] = AUTOMATIC.step_tokens
    is_automatic: bool = AUTOMATIC.is_automatic


class ProviderText(Strict):
    key_env: Annotated[tuple[str, ...], Field(min_length=1)]
    base_url: Annotated[str, Field(pattern=r"^https://")]
    wire_format: WireFormat
    price_name: str
    on_disconnect: OnDisconnect
    prompt_cache: PromptCacheText = PromptCacheText()
    models: Annotated[dict[str, ModelText], Field(min_length=1)]

    def provider(self, name: str, key_env: str) -> HostedProvider:
        return HostedProvider(
            name=name,
            key_env=key_env,
            base_url=self.base_url,
            wire_format=self.wire_format,
            price_name=self.price_name,
            on_disconnect=self.on_disconnect,
            models=tuple(model.model(model_name) for model_name, model in self.models.items()),
            prompt_cache=PromptCache(**self.prompt_cache.model_dump()),
        )


class ProvidersText(Strict):
    longer_cached: dict[str, Annotated[int, Field(ge=1)]]
    providers: dict[str, ProviderText]


@cache
def load_providers() -> tuple[HostedProvider, ...]:
    """Every provider known to us, with or without a key; `key_env` is the preferred variable."""
    return tuple(text.provider(name, text.key_env[0]) for name, text in _shipped().providers.items())


def hosted_from_environment(environ: Mapping[str, str]) -> list[HostedProvider]:
    """The providers with a key in `environ`, in file order; `key_env` is the variable that holds it."""
    found: list[HostedProvider] = []
    for name, text in _shipped().providers.items():
        variable = next((variable for variable in text.key_env if environ.get(variable, "").strip()), None)
        if variable is not None:
            found.append(text.provider(name, variable))
    return found


def least_cached_tokens() -> Mapping[str, int]:
    """Minimum tokens of a prompt that Anthropic caches, by upstream model, where it differs from `prompt_cache`."""
    return _shipped().longer_cached


@cache
def _shipped() -> ProvidersText:
    text = (files("gateway.config") / "providers.yaml").read_text(encoding="utf-8")
    return validate_yaml(ProvidersText, text, "gateway/config/providers.yaml")
