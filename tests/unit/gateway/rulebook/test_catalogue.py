"""Rules may name only what the configuration has."""

import pytest

from classifier.load import load_artefact
from classifier.protocol import ModelProfile
from gateway.config.providers import load_providers
from gateway.errors import ConfigurationError
from gateway.routing.rules import specialty_of
from gateway.rulebook.catalogue import BackendFacts, Catalogue, profiles

RULES = """\
version: 1
models:
  large:
    upstream_model: large
    backend: acme
    context_window: 1000
rules:
  - name: default
    choose: {from: [large]}
"""


def test_a_backend_that_is_not_there_is_named_with_its_line_and_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Catalogue({"local": BackendFacts("local")}, {}).parse(RULES, file="rules.yaml")
    assert str(caught.value).startswith(
        "rules.yaml:5: models: the model 'large' names the backend 'acme'; known: local. "
    )
    assert "known after a restart" in str(caught.value)
    assert (
        Catalogue({"acme": BackendFacts("acme")}, {}).parse(RULES, file="rules.yaml").models["large"].backend == "acme"
    )


def test_the_classifier_is_told_what_a_provider_calls_a_model() -> None:
    text = RULES.replace("upstream_model: large", "upstream_model: openai/gpt-oss-20b")
    told = profiles(Catalogue({"acme": BackendFacts("acme")}, {}).parse(text, file="rules.yaml").models)
    assert load_artefact().bind(told).origins["large"] == "family gpt-oss*"


def test_the_hosted_models_that_ship_are_known_by_name() -> None:
    """An unknown model is expected to fail two prompts of three, so no rule with min_quality would choose it."""
    told = [
        ModelProfile(model.name, upstream_model=model.upstream_model)
        for provider in load_providers()
        for model in provider.models
        if specialty_of(model.supports) is None
    ]
    unknown = {name for name, origin in load_artefact().bind(told).origins.items() if "nothing is known" in origin}
    assert unknown == {"openrouter-mimo-v2.6-flash"}
