"""Keys from the environment: one or several, with limits, and the message about a missing one."""

import pytest

from backends.key_pool import KeyLimits, KeyPool
from backends.scripted import Outcome, ScriptedBackend, follow
from gateway.composition.provider_keys import FoundKey, build_pooled, keys_of_block, keys_of_provider
from gateway.config.settings import BackendSettings, KeySettings
from gateway.errors import ConfigurationError

URL = "http://127.0.0.1:1/v1"


def block(**fields: object) -> BackendSettings:
    return BackendSettings.model_validate({"base_url": URL, **fields})


def build(key: str | None) -> ScriptedBackend:
    return ScriptedBackend(f"with {key}", follow([Outcome()]))


def test_a_block_has_no_key_or_one_or_several_with_their_limits() -> None:
    environ = {"A": " sk-a ", "B": "sk-b"}
    assert keys_of_block("x", block(), environ) == [FoundKey("", None)]
    assert keys_of_block("x", block(api_key_env="A"), environ) == [FoundKey("A", "sk-a")]
    several = block(keys=[KeySettings(env="A", requests_per_minute=5), KeySettings(env="B", concurrent_requests=2)])
    assert keys_of_block("x", several, environ) == [
        FoundKey("A", "sk-a", KeyLimits(5, None)),
        FoundKey("B", "sk-b", KeyLimits(None, 2)),
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"api_key_env": "GONE"}, "backends.x.api_key_env: the environment has no GONE"),
        ({"keys": [{"env": "A"}, {"env": "GONE"}]}, "backends.x.keys: the environment has no GONE"),
    ],
)
def test_a_missing_key_is_named(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        keys_of_block("x", block(**fields), {"A": "sk-a", "GONE": "  "})


@pytest.mark.parametrize("secret", ["sk-proj-4711", "gsk_4711abc", "AIzaSy4711"])
def test_a_key_in_place_of_its_variable_is_not_shown(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="not the key itself") as refused:
        keys_of_block("x", block(api_key_env=secret), {})
    assert "4711" not in str(refused.value)


def test_a_providers_further_keys_are_numbered_without_a_gap() -> None:
    environ = {"K": "1", "K_2": "2", "K_3": "3", "K_5": "5"}
    assert [key.label for key in keys_of_provider("K", environ)] == ["K", "K_2", "K_3"]


def test_one_plain_key_needs_no_pool() -> None:
    assert isinstance(build_pooled("x", [FoundKey("A", "sk-a")], build), ScriptedBackend)
    pool = build_pooled("x", [FoundKey("A", "sk-a"), FoundKey("B", "sk-b")], build)
    assert isinstance(pool, KeyPool)
    assert (pool.name, pool.labels()) == ("x", ("A", "B"))
    assert isinstance(build_pooled("x", [FoundKey("A", "sk-a", KeyLimits(1))], build), KeyPool)
