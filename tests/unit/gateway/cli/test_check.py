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
