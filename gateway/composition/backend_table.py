"""The deployment's backends and the models they provide: settings and environment turned into adapters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from backends.anthropic import NATIVE_PATHS, AnthropicBackend
from backends.dialects import PLAIN, Dialect, dialect_of, dialect_of_engine
from backends.gemini import GeminiBackend
from backends.key_pool import KeyPool
from backends.litellm_backend import LitellmBackend, tier_asked
from backends.openai_compatible import DEFAULT_PATHS, OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import CONTENT, Backend, Operation, Timeouts
from backends.scripted import ScriptedBackend
from backends.simulation import Pace, simulate
from backends.translating import TranslatingBackend
from backends.two_formats import TwoFormatsBackend
from gateway.composition.provider_keys import build_pooled, keys_of_block, keys_of_provider
from gateway.config.engine_curve import MeasuredEngine, curve_of_block
from gateway.config.providers import HostedProvider, hosted_from_environment, least_cached_tokens, load_providers
from gateway.config.settings import LOCAL_BACKEND, BackendSettings, EngineSettings, Settings
from gateway.economics.errors import EconomicsError
from gateway.errors import ConfigurationError
from gateway.money import parse_usd
from gateway.routing.rules import EMBEDDINGS, ModelSpec, specialty_of
from gateway.routing.snapshot import EngineSpeed
from gateway.rulebook.catalogue import SIMULATED, BackendFacts, Catalogue
from gateway.upstreams.load import KeyShelf
from gateway.upstreams.warm_prefixes import PromptCache

OPENAIS = "/openai"
"""Suffix of Google's address for OpenAI clients."""
SIMULATED_PROVIDER = "openai"
"""The provider whose list prices the simulated models carry."""


ENGINE_CACHE = PromptCache(ttl_seconds=600.0, least_tokens=16, step_tokens=16, is_replicas_own=True)
"""Blocks of 16 tokens, kept until space is needed: how long that is depends on the load, so this is a guess."""


@dataclass(slots=True)
class BackendTable:
    """Adapters by backend name, the catalogue's facts about each, and the models from the environment."""

    adapters: dict[str, Backend] = field(default_factory=dict[str, Backend])
    facts: dict[str, BackendFacts] = field(default_factory=dict[str, BackendFacts])
    models: dict[str, ModelSpec] = field(default_factory=dict[str, ModelSpec])
    drains: set[str] = field(default_factory=set[str])
    shelves: dict[str, KeyShelf] = field(default_factory=dict[str, KeyShelf])
    timeouts: dict[str, Timeouts] = field(default_factory=dict[str, Timeouts])
    prompt_caches: dict[str, PromptCache] = field(default_factory=dict[str, PromptCache])

    def add(
        self,
        adapter: Backend,
        facts: BackendFacts,
        dialect: Dialect | None = None,
        *,
        drains: bool = False,
        native: Collection[Operation] = (),
    ) -> None:
        """`native` are operations besides chat that this adapter needs no translation for."""
        dialect = dialect or dialect_of(facts.provider)
        self.adapters[adapter.name] = TranslatingBackend(adapter, native=native, dialect=dialect)
        self.facts[adapter.name] = facts
        if isinstance(adapter, KeyPool):
            self.shelves[adapter.name] = adapter
        if drains:
            self.drains.add(adapter.name)

    def catalogue(self) -> Catalogue:
        off = frozenset({LOCAL_BACKEND}) - self.facts.keys()
        return Catalogue(self.facts, self.models, off)


def build_backend_table(
    settings: Settings, environ: Mapping[str, str], engine_url: str | None, curve: MeasuredEngine
) -> BackendTable:
    """Every backend available. Raises ConfigurationError for a backend block that cannot work."""
    table = BackendTable()
    if engine_url is not None:
        engine = OpenAICompatibleBackend(LOCAL_BACKEND, engine_url, None, provider=LOCAL_BACKEND, health_from="engine")
        speed = curve.speed(settings.engine.gpu_hour_pico_usd)
        facts = BackendFacts(provider=LOCAL_BACKEND, speed=speed)
        table.add(engine, facts, dialect_of_engine(LOCAL_BACKEND))
        table.prompt_caches[LOCAL_BACKEND] = ENGINE_CACHE
        _add_embedding_model(table, settings.engine)
    for name, block in settings.backends.items():
        _add_block(table, name, block, environ)
    # A configured backend takes precedence over a hosted provider of the same name.
    hosted = [one for one in hosted_from_environment(environ) if one.name not in settings.backends]
    for provider in hosted:
        _add_provider(table, provider, environ)
    _mark_prompts(table, settings)
    if not hosted and settings.simulated_hosted == "when_no_key":
        _add_simulated(table)
    return table


def _mark_prompts(table: BackendTable, settings: Settings) -> None:
    """Applies `prompt_caching`. Raises ConfigurationError for backends that take no marks."""
    shipped = {provider.name: provider.wire_format for provider in load_providers()}
    formats = shipped | {name: block.wire_format for name, block in settings.backends.items()}
    for name, how in settings.prompt_caching.items():
        if name not in formats:
            known = ", ".join(sorted(one for one, wire_format in formats.items() if wire_format == "anthropic"))
            problem = f"there is no such backend; known of wire_format anthropic: {known}"
            raise ConfigurationError(problem, field=f"prompt_caching.{name}")
        if formats[name] != "anthropic":
            problem = "leave it out: only a backend of wire_format anthropic waits for marks, others cache unasked"
            raise ConfigurationError(problem, field=f"prompt_caching.{name}")
        if how == "auto" and name in table.facts:  # otherwise its key is not in this environment
            cache = table.prompt_caches[name] = replace(table.prompt_caches[name], marks="auto")
            table.facts[name] = replace(
                table.facts[name],
                marks_prompts=True,
                least_cached_tokens=cache.least_tokens,
                least_cached_tokens_of=least_cached_tokens(),
            )


def _add_embedding_model(table: BackendTable, engine: EngineSettings) -> None:
    if engine.embedding_model is None:
        return
    table.models[engine.embedding_name] = ModelSpec.model_validate(
        {
            "backend": LOCAL_BACKEND,
            "upstream_model": engine.embedding_name,
            "context_window": engine.embedding_context_window,
            "supports": [EMBEDDINGS],
        }
    )


def _add_block(table: BackendTable, name: str, block: BackendSettings, environ: Mapping[str, str]) -> None:
    provider = block.provider or name
    dialect = dialect_of(provider) if block.health_from == "models" else dialect_of_engine(provider)
    keys = keys_of_block(name, block, environ)
    try:
        adapter = build_pooled(name, keys, partial(_build_block, name, block, provider))
        speed = _speed(block)
    except (ValueError, EconomicsError) as error:
        raise ConfigurationError(str(error), field=f"backends.{name}") from error
    table.add(
        adapter,
        BackendFacts(
            provider=provider,
            speed=speed,
            is_engine=block.health_from != "models",
            asked_tier=tier_asked(block.litellm or {}),
        ),
        dialect if block.litellm is None else replace(dialect, takes_cache_marks=True, says_by_effort=("reasoning",)),
        drains=block.on_disconnect == "drain",
        native=_native_to_block(block),
    )
    table.timeouts[name] = Timeouts(**block.timeouts.model_dump())
    table.prompt_caches[name] = _prompt_cache(block)


def _prompt_cache(block: BackendSettings) -> PromptCache:
    """Anthropic caches nothing unless marked; assuming that it did would make conversations seem ten times cheaper."""
    if block.wire_format == "anthropic" and "prompt_cache" not in block.model_fields_set:
        return next(one.prompt_cache for one in load_providers() if one.name == "anthropic")
    return PromptCache(**block.prompt_cache.model_dump())


def _native_to_block(block: BackendSettings) -> Collection[Operation]:
    if block.answers_responses:
        # vLLM has no `responses/input_tokens` (seen at 0.32.0), and counts the chat that the request would be
        return OPENAI_PATHS.keys() - ({"responses.input_tokens"} if block.health_from == "vllm" else ())
    return () if block.litellm is not None else native_operations(block.wire_format, "")


def _build_block(name: str, block: BackendSettings, provider: str, key: str | None) -> Backend:
    if block.litellm is not None:
        return LitellmBackend(name, settings={**block.litellm, **({"api_key": key} if key else {})})
    if block.wire_format != "openai":
        return build_adapter(block.wire_format, name, block.base_url, key, provider)
    return OpenAICompatibleBackend(
        name,
        block.base_url,
        key,
        provider=provider,
        paths=OPENAI_PATHS if block.answers_responses else DEFAULT_PATHS,
        dialect=dialect_of(provider) if block.health_from == "models" else PLAIN,  # an engine has no dialect
        health_from=block.health_from,
        max_running=block.max_running,
    )


def _speed(block: BackendSettings) -> EngineSpeed | None:
    if block.gpu_hour_usd is None or block.throughput is None:
        return None
    return curve_of_block(block.throughput).speed(parse_usd(block.gpu_hour_usd))


def _add_provider(table: BackendTable, provider: HostedProvider, environ: Mapping[str, str]) -> None:
    keys = keys_of_provider(provider.key_env, environ)

    def build(key: str | None) -> Backend:
        return build_adapter(provider.wire_format, provider.name, provider.base_url, key, provider.name)

    adapter = build_pooled(provider.name, keys, build)
    table.add(
        adapter,
        BackendFacts(provider=provider.price_name),
        drains=provider.on_disconnect == "drain",
        native=native_operations(provider.wire_format, provider.name),
    )
    table.prompt_caches[provider.name] = provider.prompt_cache
    for model in provider.models:
        table.models[model.name] = ModelSpec.model_validate(
            {
                "backend": provider.name,
                "upstream_model": model.upstream_model,
                "context_window": model.context_window,
                "supports": list(model.supports),
            }
        )


def _add_simulated(table: BackendTable) -> None:
    """List prices without a network: serves only requests tagged for simulation, and is marked everywhere."""
    provider = next(one for one in load_providers() if one.name == SIMULATED_PROVIDER)
    table.add(
        ScriptedBackend(SIMULATED, partial(simulate, pace=Pace())), BackendFacts(provider=SIMULATED, is_simulated=True)
    )
    for model in provider.models:
        if specialty_of(model.supports) is not None:
            continue  # the simulation answers only chats
        table.models[f"{SIMULATED}/{model.name}"] = ModelSpec.model_validate(
            {
                "backend": SIMULATED,
                "upstream_model": model.upstream_model,
                "context_window": model.context_window,
                "supports": list(model.supports),
                "priced_as": f"{provider.price_name}/{model.upstream_model}",
            }
        )


def native_operations(wire_format: str, provider: str) -> Collection[Operation]:
    """Operations besides chat that `build_adapter`'s adapter answers itself."""
    if wire_format == "anthropic":
        return NATIVE_PATHS
    if "gemini" in (wire_format, provider):
        return CONTENT
    return OPENAI_PATHS if wire_format == "openai" and provider == "openai" else ()


def build_adapter(wire_format: str, name: str, base_url: str, key: str | None, provider: str) -> Backend:
    """The adapter for a wire format. Raises ValueError for an unusable URL or key."""
    if wire_format == "anthropic":
        return AnthropicBackend(name, base_url, key)
    if wire_format == "gemini":
        return GeminiBackend(name, base_url, key)
    paths = OPENAI_PATHS if provider == "openai" else DEFAULT_PATHS  # only OpenAI itself stores Responses state
    made = OpenAICompatibleBackend(name, base_url, key, provider=provider, paths=paths, dialect=dialect_of(provider))
    if provider == "gemini":  # Google's endpoint for OpenAI clients, with its own format behind it
        own = GeminiBackend(name, base_url.rstrip("/").removesuffix(OPENAIS), key)
        return TwoFormatsBackend(made, own, of_second=CONTENT)
    return made
