"""The setting that marks prompts for a provider's cache: where it works, and the error where it cannot."""

import pytest
from pydantic import ValidationError

from gateway.composition.backend_table import BackendTable, build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.price_files import load_price_book
from gateway.config.settings import Settings
from gateway.errors import ConfigurationError
from gateway.routing.snapshot import CacheWrites

CURVE = fit_engine(ASSUMED)
KEYS = {"ANTHROPIC_API_KEY": "sk", "OPENAI_API_KEY": "sk"}
CLAUDE = {"base_url": "http://127.0.0.1:9/v1", "wire_format": "anthropic", "provider": "anthropic"}
AT_US = 1_795_000_000_000_000
RULES = """
version: 1
models:
  old: {backend: claude, upstream_model: claude-opus-4-6, context_window: 200000}
  new: {backend: claude, upstream_model: claude-opus-5-5, context_window: 200000}
  cheap: {backend: claude, upstream_model: claude-unheard-of, context_window: 200000}
rules:
  - {name: default, choose: {from: [old, new, cheap]}}
"""


def table(environ: dict[str, str] | None = None, **settings: object) -> BackendTable:
    read = Settings.model_validate({"simulated_hosted": "never", **settings})
    return build_backend_table(read, KEYS if environ is None else environ, None, CURVE)


def writes(of: BackendTable, rules: str = "") -> dict[str, CacheWrites]:
    catalogue = of.catalogue()
    first = next(iter(of.models))
    document = catalogue.parse(
        rules or f"version: 1\nrules:\n  - {{name: default, choose: {{from: [{first}]}}}}\n", file="rules.yaml"
    )
    snapshot = catalogue.snapshot(document, load_price_book(), classifier_version="-", at_us=AT_US)
    return {name: one.cache_writes for name, one in snapshot.candidates.items()}


def test_nothing_is_marked_unless_asked_and_openai_writes_by_itself() -> None:
    found = writes(table())
    assert found["claude-sonnet-5-5"] == CacheWrites("caller")
    assert found["gpt-6-luna"] == CacheWrites("provider", 1024)
    assert found["gpt-5.4-mini"] == CacheWrites("caller"), "before GPT-5.6 a write has no price of its own"


def test_the_shipped_provider_marks_where_it_is_asked_to() -> None:
    asked = table(prompt_caching={"anthropic": "auto"})
    assert writes(asked)["claude-sonnet-5-5"] == CacheWrites("gateway", 512)
    assert asked.prompt_caches["anthropic"].marks == "auto"
    assert table(prompt_caching={"anthropic": "callers"}).prompt_caches["anthropic"].marks == "callers"
    assert "anthropic" not in table({}, prompt_caching={"anthropic": "auto"}).adapters, "a key may be elsewhere"


def test_a_block_of_ones_own_marks_from_each_models_minimum() -> None:
    own = table(backends={"claude": CLAUDE}, prompt_caching={"claude": "auto"})
    found = writes(own, RULES)
    assert (found["old"], found["new"]) == (CacheWrites("gateway", 4096), CacheWrites("gateway", 512))
    assert found["cheap"] == CacheWrites(), "without a known price nothing says that it pays"


def test_an_anthropic_block_is_not_taken_to_cache_by_itself() -> None:
    assert not table(backends={"claude": CLAUDE}).prompt_caches["claude"].is_automatic
    said = {**CLAUDE, "prompt_cache": {"is_automatic": True}}
    assert table(backends={"claude": said}).prompt_caches["claude"].is_automatic


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("claud", "there is no such backend; known of wire_format anthropic: anthropic$"),
        ("openai", "leave it out: only a backend of"),
    ],
)
def test_a_backend_that_cannot_be_marked_is_named(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        table(prompt_caching={name: "auto"})
    assert f"prompt_caching.{name}" in str(caught.value)


def test_only_who_marks_is_said() -> None:
    with pytest.raises(ValidationError, match="'auto' or 'callers'"):
        Settings.model_validate({"prompt_caching": {"anthropic": "always"}})
