"""What `breakeven check` notes of a configuration that is valid."""

import json

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.config.home import Home
from tests.homes import new_home

JUDGE = "shadow_calls: {share: 0.02, judge: gpt-nope}\n"
LIMITS = "tiers: {best: [gpt-nope, smollm2-135m-instruct]}\nlimits: {models: {gpt-none: {requests_per_minute: 5}}}\n"


def test_limits_and_a_judge_that_are_not_here_are_noted(home: Home) -> None:
    """A misspelt name limited nothing, without a word."""
    new_home(home.root)
    with home.config_file.open("a") as file:
        file.write(LIMITS + JUDGE)
    result = CliRunner().invoke(build("check"), ["check", "--json"])
    assert [note.partition(":")[0] for note in json.loads(result.stdout)["notes"]] == [
        "limits.models",
        "tiers.best",
        "shadow_calls.judge",
    ]


def test_a_price_tells_what_is_off_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the list price alone, so nobody saw whether their terms were taken."""
    new_home(home.root)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with home.config_file.open("a") as file:
        file.write("price_overrides: [terms.yaml]\n")
    (home.root / "terms.yaml").write_text("overrides: [{provider: openai, discount: -0.1}]\n")
    result = CliRunner().invoke(build("check"), ["check", "--json"])
    assert json.loads(result.stdout)["models"]["gpt-5.4-mini"] == "$0.75 / $4.5, 10% more"


VERTEX = """backends:
  vertex: {litellm: {extra_headers: {X-Vertex-AI-LLM-Shared-Request-Type: priority}}}
  other: {litellm: {service_tier: unheard-of}}
"""
MODELS = """version: 1
models:
  asked: {backend: vertex, upstream_model: vertex_ai/x, priced_as: gemini/gemini-2.5-flash, context_window: 9000}
  unknown: {backend: other, upstream_model: bedrock/x, priced_as: gemini/gemini-2.5-flash, context_window: 9000}
  misspelt: {backend: other, upstream_model: bedrock/x, priced_as: gemini-2.5-flash, context_window: 9000}
rules: [{name: default, choose: {from: any}}]
"""


def test_a_price_is_told_in_the_tier_that_the_block_asks_for_and_why_there_is_none(home: Home) -> None:
    new_home(home.root)
    home.config_file.write_text("engine: {is_enabled: false}\n" + VERTEX)
    home.rules_file.write_text(MODELS)
    models = json.loads(CliRunner().invoke(build("check"), ["check", "--json"]).stdout)["models"]
    assert models["asked"] == "$0.3 / $2.5; asked for in priority: $0.54 / $4.5"
    assert models["unknown"].endswith(
        "; asked for in unheard-of, which has no price: requests will be booked with cost NULL"
    )
    assert models["misspelt"].endswith("PROVIDER/MODEL of the price list, which has no 'gemini-2.5-flash'")


REGIONS = """backends:
  openai-eu: {base_url: "https://eu.api.openai.com/v1"}
  openai-all: {base_url: "https://api.openai.com/v1"}
  mistral-eu: {base_url: "https://api.eu.mistral.ai/v1"}
  mistral-us: {base_url: "https://api.us.mistral.ai/v1"}
price_overrides: [terms.yaml]
"""
REGIONAL = """version: 1
models:
  new: {backend: openai-eu, upstream_model: gpt-5.4, priced_as: openai/gpt-5.4, context_window: 9000}
  old: {backend: openai-eu, upstream_model: gpt-4o, priced_as: openai/gpt-4o, context_window: 9000}
  all: {backend: openai-all, upstream_model: gpt-5.4, priced_as: openai/gpt-5.4, context_window: 9000}
  small: {backend: mistral-eu, upstream_model: m, priced_as: mistral/mistral-small-latest, context_window: 9000}
  agreed: {backend: mistral-us, upstream_model: m, priced_as: mistral/mistral-large-latest, context_window: 9000}
rules: [{name: default, choose: {from: any}}]
"""


def test_a_regional_host_that_costs_more_is_noted(home: Home) -> None:
    """Its answers cost 10 % more than was booked, and nothing but the bill says so."""
    new_home(home.root)
    home.config_file.write_text("engine: {is_enabled: false}\n" + REGIONS)
    home.rules_file.write_text(REGIONAL)
    terms = "overrides: [{provider: mistral, model: mistral-large-latest, discount: -0.1}]\n"
    (home.root / "terms.yaml").write_text(terms)
    notes = json.loads(CliRunner().invoke(build("check"), ["check", "--json"]).stdout)["notes"]
    assert [(note.partition(":")[0], note.partition("Give ")[2].partition(" `")[0]) for note in notes] == [
        ("backends.openai-eu", "new"),
        ("backends.mistral-eu", "small"),
    ]


HEADS = """version: 1
models:
  a: {backend: local, upstream_model: a, context_window: 9000, head: gpt-4o}
  b: {backend: local, upstream_model: b, context_window: 9000, head: nobody, ability: 0.6}
  c: {backend: local, upstream_model: c-7b, context_window: 9000, benchmarks: {unheard-of: 0.7}}
rules: [{name: default, choose: {from: any}}]
"""


def test_what_the_classifier_does_not_know_of_a_model_is_noted(home: Home) -> None:
    """A misspelt head was called valid, and no gateway started with it."""
    new_home(home.root)
    home.rules_file.write_text(HEADS)
    result = CliRunner().invoke(build("check"), ["check", "--json"])
    assert json.loads(result.stdout)["notes"] == [
        "models.b.head: not known to the classifier; used instead: stated ability",
        "models.c.benchmarks: not known to the classifier; used instead: size 7e9 parameters",
    ]
