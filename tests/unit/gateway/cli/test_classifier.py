"""`breakeven classifier` over the demonstration's database: feedback in, correction out, promotion asked for, back."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from classifier.load import SHIPPED as SHIPPED_FOLDER
from gateway.cli import build
from gateway.cli.state import open_state
from gateway.errors import ConfigurationError, StateError
from gateway.instants import moment_of
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.feedback import SqlFeedback
from gateway.stores import EntryWanted, Feedback
from tests.unit.gateway.api.memory_stores import NOW_US
from tests.unit.gateway.cli.commands import run_cli

pytestmark = pytest.mark.usefixtures("month")


def run(*words: str) -> Any:
    return json.loads(run_cli("classifier", *words, "--json"))


async def give_feedback(score: float, *, score_of_newest: float | None = None) -> list[int]:
    """Feedback on some hundred requests, with another score for the newer half if given; the requests' times."""
    async with open_state() as state:
        found = await SqlEntries(state.database).find(EntryWanted(limit=500))
        scores = [score_of_newest if score_of_newest is not None and 2 * n < len(found) else score for n in range(500)]
        await SqlFeedback(state.database).add(
            [
                Feedback(one.intent.request_id, NOW_US, "score", given, "caller", "key-1")
                for one, given in zip(found, scores, strict=False)
            ]
        )
    return sorted(one.intent.accepted_at_us for one in found)


def test_too_little_feedback_is_told_with_what_to_do() -> None:
    with pytest.raises(StateError, match="send it to /v1/feedback"):
        run("learn")


def test_learn_refuse_promote_and_go_back() -> None:
    assert len(asyncio.run(give_feedback(0.0))) >= 100
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


def test_what_was_said_since_a_model_changed_can_be_learnt_alone() -> None:
    """The older 70 % of all feedback are learned from, and most of those are about the former model."""
    accepted = asyncio.run(give_feedback(1.0, score_of_newest=0.0))
    half = moment_of(accepted[len(accepted) // 2 + 1]).isoformat()
    before, since = run("learn"), run("learn", "--since", half)
    changed = before["shifts"].keys() & since["shifts"].keys()
    assert changed
    assert all(since["shifts"][model][0] < before["shifts"][model][0] - 0.5 for model in changed)
    assert since["judged"] < before["judged"]
    with pytest.raises(StateError, match="0 answers since 2999-01-01 have feedback"):
        run("learn", "--since", "2999-01-01")
    refused = CliRunner().invoke(build("classifier"), ["classifier", "learn", "--since", "yesterday"])
    assert refused.exit_code == 2
    assert "'yesterday' is not an ISO 8601 date" in refused.output


def test_without_a_correction_that_was_lost_later_requests_can_be_learnt(month: Path) -> None:
    asyncio.run(give_feedback(0.0))
    with contextlib.closing(sqlite3.connect(month / "breakeven.db")) as books, books:
        books.execute("UPDATE circumstances SET classifier_version = 'demo+3f2a'")
    with pytest.raises(StateError, match=r"3f2a\.json from a backup of the home, or learn from later") as lost:
        run("learn")
    since = str(lost.value).rstrip("`").partition("`breakeven classifier learn --since ")[2]
    with pytest.raises(StateError, match=f"0 answers since {since} have feedback"):
        run("learn", "--since", since)


def test_an_artefact_needs_somebody_to_say_that_it_was_tested() -> None:
    with pytest.raises(StateError, match="no correction, stored artefact or folder '3f2a'"):
        run("promote", "3f2a")
    with pytest.raises(ConfigurationError, match="breakeven calibrate"):
        run("promote", str(SHIPPED_FOLDER))
    promoted = run("promote", str(SHIPPED_FOLDER), "--untested", "calibrated on held-out labels")
    assert promoted["active"]["artefact"] in run("list")["artefacts"]
    assert all(one["origin"] for one in run("models").values())
    run("rollback")
