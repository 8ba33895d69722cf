"""Reads the parts of LiteLLM's config.yaml that have a counterpart here. Pure: opens no file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.errors import ConfigurationError
from gateway.yaml_document import parse_yaml

Fields = Mapping[str, Any]
FROM_ENVIRONMENT: Final = "os.environ/"
"""LiteLLM's prefix for the name of an environment variable in place of a value."""
NO_KEYS: Final = frozenset({"", "none", "null", "empty", "fake", "dummy", "fake-key", "fake-api-key", "not-needed"})
"""Placeholder keys for self-hosted servers that need none."""
BY_NAME: Final = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "dall-e-": "openai",
    "tts-": "openai",
    "whisper-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "text-embedding-": "openai",
    "omni-moderation": "openai",
    "claude-": "anthropic",
}
"""The provider of a model whose name has no provider prefix."""
OTHER_NAMES: Final = {"text-completion-openai": "openai"}
"""LiteLLM's second names of providers. There they choose the endpoint; here the caller does."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One entry of `model_list`. `model` is what its provider calls it; `litellm_model` has LiteLLM's prefix."""

    place: int
    name: str
    provider: str
    model: str
    params: Fields
    info: Fields

    @property
    def litellm_model(self) -> str:
        return f"{self.provider}/{self.model}"

    @property
    def variable(self) -> str | None:
        """The environment variable that holds its key, if the file names one."""
        key = str(self.params.get("api_key") or "")
        return key.removeprefix(FROM_ENVIRONMENT) if key.startswith(FROM_ENVIRONMENT) else None

    @property
    def has_written_key(self) -> bool:
        """Whether the file itself contains the key."""
        key = str(self.params.get("api_key") or "")
        return self.variable is None and key.lower() not in NO_KEYS

    @property
    def where(self) -> str:
        return f"model_list[{self.place}] ({self.name})"


@dataclass(frozen=True, slots=True)
class LiteLLMConfig:
    """`fallbacks` are those of each name, in order; `notes` name settings that have no counterpart here."""

    deployments: Sequence[Deployment]
    fallbacks: Mapping[str, Sequence[str]]
    aliases: Mapping[str, str]
    retries: int | None
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def ordered(self) -> frozenset[str]:
        """Names with a deployment that sets `order`."""
        return frozenset(one.name for one in self.deployments if "order" in one.params)


def parse_fields(text: str, *, file: str) -> Fields:
    """One file's sections; none if it is empty. Raises ConfigurationError, with the line, if it is not YAML."""
    root = parse_yaml(text, file=file).value
    if not isinstance(root, dict | None):
        raise ConfigurationError(
            "has no named sections, as LiteLLM's config.yaml has; is it the right file?", file=file
        )
    return _fields(root)


def read_config(root: Fields, *, file: str) -> LiteLLMConfig:
    """Reads the sections of `file`, its includes merged. Raises ConfigurationError if it has no `model_list`."""
    if not isinstance(root.get("model_list"), list):
        raise ConfigurationError(
            "has no `model_list`, which LiteLLM's config.yaml begins with; is it the right file?", file=file
        )
    notes: list[str] = []
    router, settings = (_fields(root.get(name)) for name in ("router_settings", "litellm_settings"))
    deployments = list(_deployments(cast("list[Any]", root["model_list"]), notes))
    names = dict.fromkeys(one.name for one in deployments)
    fallbacks = _fallbacks(names, router, settings)
    retries = settings.get("num_retries", router.get("num_retries"))
    notes += _other_settings(root, router, settings)
    return LiteLLMConfig(
        deployments,
        fallbacks,
        _aliases(router.get("model_group_alias")),
        retries if isinstance(retries, int) else None,
        notes,
    )


def access_groups(root: Fields) -> Mapping[str, Sequence[str]]:
    """Each access group, which keys can be allowed, and the names of its models."""
    found: dict[str, dict[str, None]] = {}
    for entry in map(_fields, _listed(root.get("model_list"))):
        for group in _listed(_fields(entry.get("model_info")).get("access_groups")):
            found.setdefault(str(group), {})[str(entry.get("model_name"))] = None
    return {group: tuple(names) for group, names in found.items()}


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    """A single value counts as a list of one."""
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _deployments(listed: Sequence[object], notes: list[str]) -> Iterator[Deployment]:
    for place, one in enumerate(listed):
        entry = _fields(one)
        params, name = _fields(entry.get("litellm_params")), str(entry.get("model_name") or "")
        written = str(params.get("model") or "")
        if not name or not written.strip("/") or written.endswith("/"):
            notes.append(f"model_list[{place}] names no model: it needs model_name and litellm_params.model")
            continue
        if "*" in name or "*" in written:
            notes.append(
                f"model_list[{place}] ({name}) stands for every model of a provider: here each is named. Those that "
                "Breakeven ships appear once the provider's key is set; write others under `models:` in rules.yaml"
            )
            continue
        provider, model = _provider_and_model(written, params)
        if provider is None:
            notes.append(
                f"model_list[{place}] ({name}) does not say whose {written} is: write it as PROVIDER/{written}"
            )
            continue
        yield Deployment(place, name, provider, model, params, _fields(entry.get("model_info")))


def _provider_and_model(written: str, params: Fields) -> tuple[str | None, str]:
    if given := params.get("custom_llm_provider"):
        return OTHER_NAMES.get(str(given), str(given)), written.removeprefix(f"{given}/")
    provider, slash, model = written.partition("/")
    if slash:
        return OTHER_NAMES.get(provider, provider), model
    if params.get("api_base"):
        return "openai", written
    return next((whose for start, whose in BY_NAME.items() if written.startswith(start)), None), written


def _fallbacks(names: Mapping[str, None], router: Fields, settings: Fields) -> Mapping[str, Sequence[str]]:
    """All kinds in one: here a model that cannot take a prompt is passed over, whatever the reason."""
    found: dict[str, dict[str, None]] = {}
    for where in (settings, router):
        for kind in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"):
            for each in _listed(where.get(kind)):
                for name, others in _fields(each).items():
                    found.setdefault(str(name), {}).update(dict.fromkeys(map(str, _listed(others))))
    for name in names:
        others = _listed(settings.get("default_fallbacks") or router.get("default_fallbacks"))
        if more := dict.fromkeys(str(other) for other in others if other != name):
            found.setdefault(name, {}).update(more)
    return {name: tuple(others) for name, others in found.items()}


def _aliases(given: object) -> Mapping[str, str]:
    """Alias -> model; LiteLLM also takes `{model: ..., hidden: ...}`."""
    found = _fields(given)
    return {str(alias): str(_fields(one).get("model") or one) for alias, one in found.items()}


SAID_ELSEWHERE: Final = {
    "general_settings.master_key": "the first start prints an owner key",
    "general_settings.database_url": "set BREAKEVEN_DATABASE_URL; without it the books are in SQLite",
    "general_settings.alerting": "budgets are told to `notices: {webhook: ...}`, the rest by Prometheus",
    "general_settings.max_parallel_requests": "see server.max_requests_in_flight",
    "general_settings.custom_auth": "people sign in by OpenID Connect, apps by keys",
    "litellm_settings.callbacks": "`/metrics` is there for Prometheus; for OpenTelemetry see `telemetry:`",
    "litellm_settings.success_callback": "`/metrics` is there for Prometheus; for OpenTelemetry see `telemetry:`",
    "litellm_settings.failure_callback": "`/metrics` is there for Prometheus; for OpenTelemetry see `telemetry:`",
    "litellm_settings.cache": "answers are cached for those who ask: `x-breakeven-cache`, or cache_seconds of a rule",
    "litellm_settings.request_timeout": "see `timeouts:` of a backend, `fallback:` for streams",
    "litellm_settings.guardrails": "there are none",
    "litellm_settings.max_end_user_budget": "`breakeven keys change KEY --end-user-budget-usd 5` limits those of a key",
    "litellm_settings.max_budget": "the budget of everything is on the page Budgets",
    "router_settings.redis_host": "set BREAKEVEN_REDIS_URL",
    "router_settings.redis_url": "set BREAKEVEN_REDIS_URL",
    "router_settings.timeout": "see `timeouts:` of a backend",
    "router_settings.retry_policy": "what may be asked again is known of each error",
    "guardrails": "there are none",
    "files_settings": "files are those of batches, and the gateway's own",
    "finetune_settings": "there is no fine-tuning",
    "mcp_servers": "a response's tools that a provider runs pass; a gateway of tools is not here",
    "vector_store_registry": "there are none",
}
TAKEN: Final = {
    "litellm_settings": {
        "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks", "num_retries",
        "drop_params", "modify_params", "set_verbose", "json_logs", "cache_params", "turn_off_message_logging",
    },
    "router_settings": {
        "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks", "num_retries",
        "model_group_alias", "routing_strategy", "allowed_fails", "cooldown_time", "enable_pre_call_checks",
        "redis_port", "redis_password", "retry_after", "disable_cooldowns", "set_verbose", "debug_level",
    },
    "general_settings": {
        "store_model_in_db", "proxy_batch_write_at", "disable_spend_logs", "database_connection_pool_limit",
    },
}  # fmt: skip
"""Settings that are translated, or that need no counterpart here."""


def _other_settings(root: Fields, router: Fields, settings: Fields) -> Iterator[str]:
    sections = {"general_settings": _fields(root.get("general_settings")), "litellm_settings": settings}
    for section, fields in {**sections, "router_settings": router}.items():
        for name in sorted(map(str, fields.keys() - TAKEN[section])):
            yield f"{section}.{name}: {SAID_ELSEWHERE.get(f'{section}.{name}', 'has no counterpart here')}"
    if (strategy := router.get("routing_strategy", "simple-shuffle")) != "simple-shuffle":
        yield (
            f"router_settings.routing_strategy: {strategy} has no counterpart here: of several models the cheapest is "
            "asked, those at one price share the load, and a rule's max_time_to_first_token_seconds passes over slow "
            "ones"
        )
    if variables := _fields(root.get("environment_variables")):
        yield f"environment_variables: set them where you start Breakeven: {', '.join(sorted(map(str, variables)))}"
    known = {"model_list", "environment_variables", *TAKEN}
    for name in sorted(map(str, root.keys() - known)):
        yield f"{name}: {SAID_ELSEWHERE.get(name, 'has no counterpart here')}"
