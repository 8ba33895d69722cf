"""What `breakeven check` notes of a configuration that is valid."""

import json

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
