"""A backend's keys from the environment, and their adapters combined into one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.key_pool import KeyLimits, KeyPool, PooledKey
from backends.protocol import Backend
from gateway.config.settings import BackendSettings
from gateway.errors import ConfigurationError

MOST_KEYS = 32


@dataclass(frozen=True, slots=True)
class FoundKey:
    """`label` is the key's variable, the only name of it that may be shown."""

    label: str
    secret: str | None
    limits: KeyLimits = KeyLimits()  # noqa: RUF009 (frozen)


def keys_of_block(name: str, block: BackendSettings, environ: Mapping[str, str]) -> list[FoundKey]:
    """A configured backend's keys; one without a secret if it needs none. Raises ConfigurationError."""
    wanted = block.wanted_keys
    missing = [key.env for key in wanted if not environ.get(key.env, "").strip()]
    if missing:
        field = f"backends.{name}.{'keys' if block.keys else 'api_key_env'}"
        raise ConfigurationError(_absent(missing[0]), field=field)
    return [
        FoundKey(key.env, environ[key.env].strip(), KeyLimits(key.requests_per_minute, key.concurrent_requests))
        for key in wanted
    ] or [FoundKey("", None)]


def _absent(variable: str) -> str:
    """Does not repeat what is no variable name: it may be a key, which must not appear in a terminal or log."""
    if re.fullmatch("[A-Z_][A-Z0-9_]*", variable):
        return f"the environment has no {variable}; set it to the key"
    return (
        "the environment has no variable of this name. Name the variable that holds the key, such as OPENAI_API_KEY, "
        "not the key itself"
    )


def keys_of_provider(variable: str, environ: Mapping[str, str]) -> list[FoundKey]:
    """The key in `variable`, and further ones in `variable`_2, _3, ... without a gap."""
    found = [FoundKey(variable, environ[variable].strip())]
    for number in range(2, MOST_KEYS + 1):
        secret = environ.get(f"{variable}_{number}", "").strip()
        if not secret:
            break
        found.append(FoundKey(f"{variable}_{number}", secret))
    return found


def build_pooled(name: str, keys: Sequence[FoundKey], build: Callable[[str | None], Backend]) -> Backend | KeyPool:
    """One adapter, or a pool of one per key if there are several keys or limits."""
    [first, *others] = keys
    if not others and first.limits == KeyLimits():
        return build(first.secret)
    return KeyPool(name, [PooledKey(key.label, build(key.secret), key.limits) for key in keys])
