"""Translates where LiteLLM's deployments are: to shipped providers, blocks of `backends:`, and their keys."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.config.providers import HostedProvider
from gateway.from_litellm.addresses import KEY_PARAMETERS, Address, read_address
from gateway.from_litellm.config_file import FROM_ENVIRONMENT, Deployment

ENGINES: Final = {"hosted_vllm": "vllm", "vllm": "vllm", "sglang": "sglang"}
OF_THE_SAME_FORMAT: Final = frozenset(
    {
        "openai", "custom_openai", "openai_like", "litellm_proxy", "lm_studio", "llamafile",
        "ollama", "ollama_chat", "nvidia_nim", "xinference", "docker_model_runner", "infinity", *ENGINES,
    }
)  # fmt: skip
"""Providers that speak OpenAI's format at an address of the user's."""
RANKERS: Final = frozenset({"cohere", "jina_ai", "voyage", "together_ai", "fireworks_ai"})
"""Providers whose rerank endpoint our own adapters can call."""
HUGGING_FACE: Final = "huggingface"
"""A reranker of it with an address is called as Text Embeddings Inference."""
OLLAMA: Final = ("ollama", "ollama_chat")
OLLAMAS_ADDRESS: Final = "http://127.0.0.1:11434"
HOW_IT_IS_FOUND: Final = frozenset({"api_key", "api_base", "base_url", "model", "custom_llm_provider"})
TAKEN: Final = frozenset(
    {
        "rpm", "tpm", "timeout", "max_parallel_requests", "order", "base_model", "mode", "input_cost_per_token",
        "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
        "input_cost_per_query", "drop_params",
    }
)  # fmt: skip
"""Fields of `litellm_params` that are not arguments of a call, and are translated or need no counterpart."""
LEFT_OUT: Final = {
    "weight": "models at one price share the load evenly",
    "tags": "`when: {tags: [...]}` of a rule says which models requests with a tag may go to",
    "max_budget": "keys, teams and projects have budgets, models have none",
    "budget_duration": "keys, teams and projects have budgets, models have none",
    "stream_timeout": "see `fallback: {first_token_seconds: ...}`",
    "max_retries": "see `fallback: {max_attempts: ...}`",
    "num_retries": "see `fallback: {max_attempts: ...}`",
    "cooldown_time": "circuit breakers open and close by themselves",
    "allowed_fails": "circuit breakers open and close by themselves",
    "additional_drop_params": "what a model is known to refuse is left out by itself",
    "merge_reasoning_content_in_choices": "thoughts are said in fields of their own",
    "mock_response": "nothing is made up",
    "mock_timeout": "nothing is made up",
    "mock_testing_fallbacks": "nothing is made up",
    "configurable_clientside_auth_params": "callers cannot name an address or a key",
    "region_name": "models of one region can have a rule",
    "modify_params": "conversations are said as each model takes them",
    "stream": "callers say it",
    "use_in_pass_through": "there is no such way",
    "use_litellm_proxy": "see a backend's base_url",
}
"""Those without a counterpart, and why."""
SECRETS: Final = re.compile(r"key|secret|token|password|credentials")
SECRETS_OF_LITELLM: Final = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "azure_ad_token": "AZURE_AD_TOKEN",
    "vertex_credentials": "GOOGLE_APPLICATION_CREDENTIALS",
}
"""The variables in which litellm, or a library that it calls, looks for them."""
LONGEST: Final = 40


@dataclass(slots=True)
class Key:
    """The variable that holds a key, and the rate that its provider allows it."""

    env: str
    requests_per_minute: int | None = None

    def fields(self) -> dict[str, Any]:
        limit = {} if self.requests_per_minute is None else {"requests_per_minute": self.requests_per_minute}
        return {"env": self.env, **limit}


@dataclass(frozen=True, slots=True)
class Place:
    """A model's backend, its name there, and the catalogue's name for its price if that is another."""

    backend: str
    upstream_model: str
    priced_as: str | None


@dataclass(slots=True)
class Endpoints:
    """Fills `blocks` (for `backends:`), `variables` (to be set, and why) and `notes`. `environ` is read only for
    addresses and arguments that are not secret, where the file names a variable; those not set are `missing`.
    `is_ranker` says whether a deployment ranks documents."""

    shipped: Mapping[str, HostedProvider]
    environ: Mapping[str, str]
    is_ranker: Callable[[Deployment], bool]
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])

    def same(self, deployment: Deployment) -> tuple[object, ...]:
        """Equal for deployments that differ only in their key."""
        return (
            deployment.provider,
            deployment.model,
            address.url if (address := self._address(deployment)) is not None else None,
            *sorted(self._arguments(deployment).items()),
        )

    def place(self, group: Sequence[Deployment]) -> Place:
        """The place of deployments that differ only in their keys."""
        first = group[0]
        provider = self._shipped(first)
        arguments = self._arguments(first)
        if provider is not None and self._address(first) is None and not arguments:
            return self._at_provider(provider, group)
        block, is_litellm = self._block(first, provider, arguments)
        name = self._add(self._wanted_name(block, first), block, group, "")
        is_catalogued = provider is not None and self._address(first) is None
        return Place(
            name,
            first.litellm_model if is_litellm else first.model,
            f"{provider.price_name}/{first.model}" if is_catalogued and provider is not None else None,
        )

    def can_rank(self, deployment: Deployment) -> bool:
        """Whether one of our own adapters can ask it to rank; the litellm adapter cannot."""
        if self._address(deployment) is None:
            return deployment.provider in RANKERS and not self._arguments(deployment)
        return deployment.provider in RANKERS | OF_THE_SAME_FORMAT | {HUGGING_FACE}

    def _shipped(self, deployment: Deployment) -> HostedProvider | None:
        provider = self.shipped.get(deployment.provider)
        is_for_else = provider is not None and provider.only_ranks and not self.is_ranker(deployment)
        return None if is_for_else else provider

    def _at_provider(self, provider: HostedProvider, group: Sequence[Deployment]) -> Place:
        first = group[0]
        if len(group) == 1 and first.variable in (None, provider.key_env):
            if first.params.get("timeout") is not None:
                self.notes.append(
                    f"{first.where}: timeout has no counterpart for a provider that comes with Breakeven; a block of "
                    "your own under `backends:` has `timeouts:`"
                )
            self.variables.setdefault(provider.key_env, _why(first))
            return Place(provider.name, first.model, None)
        block: dict[str, Any] = {"base_url": provider.base_url, "provider": provider.name}
        if provider.wire_format != "openai":
            block["wire_format"] = provider.wire_format
        if provider.on_disconnect != "cancel":
            block["on_disconnect"] = provider.on_disconnect
        last = "keys" if len(group) > 1 else _slug(first.variable or "key")
        name = self._add(f"{provider.name}-{last}", block, group, provider.key_env)
        return Place(name, first.model, f"{provider.price_name}/{first.model}")

    def _block(
        self, first: Deployment, provider: HostedProvider | None, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        address = self._address(first)
        if first.provider in OLLAMA:
            base = OLLAMAS_ADDRESS if address is None else address.bare
            return {"base_url": f"{base.removesuffix('/v1').rstrip('/')}/v1", "provider": "ollama"}, False
        speaks_openai = provider is not None and provider.wire_format == "openai" and provider.name != "gemini"
        if address is not None and (first.provider in OF_THE_SAME_FORMAT or speaks_openai):
            block: dict[str, Any] = {"base_url": address.bare}
            if first.provider in ENGINES:
                block["health_from"] = ENGINES[first.provider]
            elif provider is not None and provider.name != "openai":
                block["provider"] = provider.name
            self._without(first, arguments, address)
            return block, False
        if address is not None and first.provider == HUGGING_FACE and self.is_ranker(first):
            self._without(first, arguments, address)
            return {"base_url": address.bare, "provider": "text-embeddings-inference"}, False
        if address is not None and first.provider == "anthropic":
            self._without(first, arguments, address)
            base = f"{address.bare.rstrip('/').removesuffix('/v1')}/v1"
            return {"base_url": base, "provider": "anthropic", "wire_format": "anthropic"}, False
        settings = {**arguments, **({"api_base": address.url} if address is not None else {})}
        return {"litellm": settings}, True

    def _without(self, deployment: Deployment, arguments: Mapping[str, Any], address: Address) -> None:
        if arguments:
            self.notes.append(f"{deployment.where}: {', '.join(arguments)} of litellm_params has no counterpart here")
        if address.parameters:
            self.notes.append(
                f"{deployment.where}: {', '.join(address.parameters)} in its address has no counterpart here: addresses"
                " are called without parameters"
            )

    def _address(self, deployment: Deployment) -> Address | None:
        given = deployment.params.get("api_base") or deployment.params.get("base_url")
        return None if given is None else read_address(str(self._resolved(deployment, "api_base", given)))

    def has_address(self, deployment: Deployment) -> bool:
        """False if its provider needs an address and there is none."""
        is_ours_to_say = deployment.provider in OF_THE_SAME_FORMAT - {"openai", *OLLAMA}
        return not is_ours_to_say or self._address(deployment) is not None

    def look(self, deployment: Deployment) -> None:
        """Notes which of its fields have no counterpart. Call it once for each deployment."""
        for name, given in deployment.params.items():
            if name in HOW_IT_IS_FOUND | TAKEN or given is None:
                continue
            if _is_no_argument(name):
                why = LEFT_OUT.get(name, "prices are by the token; see docs/prices.md for others")
                self.notes.append(f"{deployment.where}: {name} of litellm_params has no counterpart here: {why}")
            elif _is_secret(name):
                self._tell_secret(deployment, name, given)
            elif not isinstance(given, str | int | float | bool):
                self.notes.append(f"{deployment.where}: {name} of litellm_params has no counterpart here")
            elif isinstance(value := self._resolved(deployment, name, given), str):
                self._tell_credentials(deployment, read_address(value), f"in {name}")
        if (address := self._address(deployment)) is not None:
            self._tell_credentials(deployment, address, "in its address", takes_key=not _has_key(deployment))

    def _tell_credentials(
        self, deployment: Deployment, address: Address, where: str, *, takes_key: bool = False
    ) -> None:
        if address.has_user:
            self.notes.append(
                f"{deployment.where}: the user and password {where} are not copied, and Breakeven sends none: let that "
                "server take a key (`api_key_env`), or a proxy in front of it add them"
            )
        for name in address.secrets:
            if takes_key and name.lower() in KEY_PARAMETERS:
                self.notes.append(
                    f"{deployment.where}: {name} {where} is not copied: it is the backend's key now, in a variable, "
                    "and sent as a header; for a server that reads it in addresses alone, let a proxy put it there"
                )
            else:
                self.notes.append(
                    f"{deployment.where}: {name} {where} is not copied: a secret stands in no file here, and none is "
                    "sent in an address; let that server take a key (`api_key_env`), or a proxy in front of it add it"
                )

    def _arguments(self, deployment: Deployment) -> dict[str, Any]:
        """What is passed with each call, without secrets, which no file should hold."""
        found: dict[str, Any] = {}
        for name, given in deployment.params.items():
            if _is_no_argument(name):
                continue
            if isinstance(given, str | int | float | bool) and not _is_secret(name):
                value = self._resolved(deployment, name, given)
                found[name] = read_address(value).url if isinstance(value, str) else value
        return found

    def _tell_secret(self, deployment: Deployment, name: str, given: object) -> None:
        variable = SECRETS_OF_LITELLM.get(name)
        if variable is None:
            self.notes.append(f"{deployment.where}: {name} is a secret and not copied; see where litellm looks for it")
            return
        at = str(given).removeprefix(FROM_ENVIRONMENT)
        is_elsewhere = str(given).startswith(FROM_ENVIRONMENT) and at != variable
        why = f"{name} of {deployment.provider} ({deployment.name}), where litellm looks for it"
        self.variables.setdefault(variable, f"{why}; it is in {at} now" if is_elsewhere else why)

    def _resolved(self, deployment: Deployment, name: str, given: object) -> Any:
        if not (isinstance(given, str) and given.startswith(FROM_ENVIRONMENT)):
            return given
        variable = given.removeprefix(FROM_ENVIRONMENT)
        if not (value := self.environ.get(variable, "").strip()):
            self.missing.setdefault(variable, f"{name} of {deployment.where}")
            return f"http://{variable.lower().replace('_', '-')}.missing"
        return value

    def _wanted_name(self, block: Mapping[str, Any], first: Deployment) -> str:
        address = block.get("base_url") or block.get("litellm", {}).get("api_base") or ""
        host = re.split("[/?#]", str(address).partition("://")[2])[0].rpartition("@")[2]
        region = next((str(first.params[one]) for one in first.params if one.endswith(("region_name", "location"))), "")
        whose = ENGINES.get(first.provider, first.provider)
        return "-".join(part for part in (whose, host or region) if part)

    def _add(self, wanted: str, block: dict[str, Any], group: Sequence[Deployment], default: str) -> str:
        """Adds `block` and returns its name: `wanted`, or with a number if another block has that name."""
        wanted = _slug(wanted)[:LONGEST].strip("-.")
        keys = self._keys(wanted, group, default)
        if seconds := _seconds(group[0].params.get("timeout")):
            block["timeouts"] = {"first_byte_seconds": seconds}
        if [key.fields().keys() for key in keys] == [{"env"}]:
            block["api_key_env"] = keys[0].env
        elif keys:
            block["keys"] = [key.fields() for key in keys]
        taken = {"local", "simulated", *(one.name for one in self.shipped.values())}
        number, name = 1, wanted
        while name in taken or self.blocks.get(name, block) != block:
            number += 1
            name = f"{wanted[: LONGEST - 3]}-{number}"
        self.blocks[name] = block
        return name

    def _keys(self, name: str, group: Sequence[Deployment], default: str) -> Sequence[Key]:
        """A key written in the file gets the name of a variable, which the operator has to set."""
        keys: dict[str, Key] = {}
        for deployment in group:
            variable = deployment.variable or default
            address = self._address(deployment)
            in_address = not _has_key(deployment) and address is not None and address.has_key
            if deployment.has_written_key or in_address:
                variable = default or f"{re.sub(r'[^A-Z0-9]', '_', name.upper())}_API_KEY"
                variable = variable if variable not in keys else f"{variable}_{len(keys) + 1}"
            if variable:
                requests = _whole(deployment.params.get("rpm")) if len(group) > 1 else None
                keys[variable] = Key(variable, requests)
                self.variables.setdefault(variable, _why(deployment, in_address=in_address))
        return list(keys.values())


def _has_key(deployment: Deployment) -> bool:
    """Whether it has a key outside its address."""
    return deployment.variable is not None or deployment.has_written_key


def _why(deployment: Deployment, *, in_address: bool = False) -> str:
    what = f"the key of {deployment.provider} ({deployment.name})"
    if in_address:
        return f"{what}, which stands in its address in LiteLLM's file"
    return f"{what}, which stands in LiteLLM's file itself" if deployment.has_written_key else what


def _is_no_argument(name: str) -> bool:
    return name in HOW_IT_IS_FOUND | TAKEN or name in LEFT_OUT or "_cost_per_" in name


def _is_secret(name: str) -> bool:
    return SECRETS.search(name) is not None and not name.startswith("max_")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
