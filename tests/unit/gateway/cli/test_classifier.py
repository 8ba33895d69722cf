"""`breakeven classifier` over the demonstration's database: feedback in, correction out, promotion asked for, back."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from classifier.load import SHIPPED as SHIPPED_FOLDER
from gateway.cli import build
from gateway.cli.state import open_state
from gateway.errors import ConfigurationError, StateError
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.feedback import SqlFeedback
from gateway.stores import EntryOrder, Feedback
from tests.unit.gateway.api.memory_stores import NOW_US

pytestmark = pytest.mark.usefixtures("month")


def run(*words: str) -> Any:
    result = CliRunner().invoke(build("classifier"), ["classifier", *words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class Wanted:
    """Everything."""

    since = until = key_id = team = project = model = backend = rule = tag = status = before = None
    limit = 500
    order: EntryOrder = "newest"


async def give_feedback(score: float) -> int:
    async with open_state() as state:
        found = await SqlEntries(state.database).find(Wanted())
        await SqlFeedback(state.database).add(
            [Feedback(one.intent.request_id, NOW_US, "score", score, "caller", "key-1") for one in found]
        )
    return len(found)


def test_too_little_feedback_is_told_with_what_to_do() -> None:
    with pytest.raises(StateError, match="send it to /v1/feedback"):
        run("learn")


def test_learn_refuse_promote_and_go_back() -> None:
    assert asyncio.run(give_feedback(0.0)) >= 100
    learnt = run("learn")
    assert learnt["shifts"]
    assert all(level < 0.0 for level, _ in learnt["shifts"].values())
    assert run("list")["corrections"] == [learnt["correction"]]
    with pytest.raises(StateError, match="is not promoted"):
        run("promote", learnt["correction"])
    assert run("list")["active"]["correction"] is None
    promoted = run("promote", learnt["correction"], "--untested", "the test is too small")
    assert promoted["active"]["correction"] == learnt["correction"]
    assert run("list")["active"]["why"] == "the test is too small"
    assert any(one["corrected"] for one in run("models").values())
    assert run("rollback")["active"]["correction"] is None


def test_an_artefact_needs_somebody_to_say_that_it_was_tested() -> None:
    with pytest.raises(StateError, match="no correction, stored artefact or folder '3f2a'"):
        run("promote", "3f2a")
    with pytest.raises(ConfigurationError, match="breakeven calibrate"):
        run("promote", str(SHIPPED_FOLDER))
    promoted = run("promote", str(SHIPPED_FOLDER), "--untested", "calibrated on held-out labels")
    assert promoted["active"]["artefact"] in run("list")["artefacts"]
    assert all(one["origin"] for one in run("models").values())
    run("rollback")
