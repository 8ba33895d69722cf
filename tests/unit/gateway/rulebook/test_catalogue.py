"""What a rules text may name is what the configuration has."""

import pytest

from gateway.errors import ConfigurationError
from gateway.rulebook.catalogue import BackendFacts, Catalogue

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
    assert "known from the next start on" in str(caught.value)
    assert (
        Catalogue({"acme": BackendFacts("acme")}, {}).parse(RULES, file="rules.yaml").models["large"].backend == "acme"
    )
