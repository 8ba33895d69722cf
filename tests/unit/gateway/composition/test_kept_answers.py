"""Where responses are stored for callers that continue them, and for how long by default."""

from pathlib import Path

import pytest

from gateway.composition.kept_answers import KeptAnswers, open_kept_answers
from gateway.config.settings import KeptAnswerSettings
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.record_store import Change
from gateway.storage.redis.turns import RedisTurns
from gateway.storage.turns.disk_turns import DiskTurns

REDIS = "redis://127.0.0.1:6379/0"
DAY = 86_400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept-responses.db"


@pytest.fixture
def folder_in_its_place(file: Path) -> None:
    file.mkdir()
    others(file).mkdir()


def others(file: Path) -> Path:
    """The file of conversations beside it."""
    return file.with_name("kept-conversations.db")


def opened(url: str | None, settings: KeptAnswerSettings, file: Path) -> KeptAnswers:
    return open_kept_answers(url, settings, file, others(file), text_days=30)


@pytest.mark.parametrize(
    ("url", "hours", "seconds"),
    [(None, None, DAY), (None, 0, 0), (None, 0.5, 1800), (REDIS, None, 0), (REDIS, 0, 0), (REDIS, 24, DAY)],
)
async def test_a_day_here_and_in_a_redis_only_if_asked(
    url: str | None, hours: float | None, seconds: float, file: Path
) -> None:
    kept = opened(url, KeptAnswerSettings(response_hours=hours), file)
    assert kept.turn_seconds == seconds
    assert kept.conversation_seconds == (30 * DAY if seconds else 0)
    await kept.forget()
    await kept.aclose()


@pytest.mark.parametrize(
    ("url", "settings", "expected"),
    [
        (None, KeptAnswerSettings(), DiskTurns),
        (None, KeptAnswerSettings(disk_megabytes=1), DiskTurns),
        (None, KeptAnswerSettings(disk_megabytes=0), MemoryTurns),
        (None, KeptAnswerSettings(response_hours=0), MemoryTurns),
        (REDIS, KeptAnswerSettings(), RedisTurns),
        (REDIS, KeptAnswerSettings(response_hours=24), RedisTurns),
    ],
)
async def test_what_an_earlier_start_left_on_the_disk_goes_where_nothing_is_kept_there(
    url: str | None, settings: KeptAnswerSettings, expected: type, file: Path
) -> None:
    earlier = opened(None, KeptAnswerSettings(), file)
    await earlier.turns.put("a", b"turn", 60)
    assert await earlier.conversations.swap(Change("a", None, b"head"), 60)
    await earlier.aclose()
    kept = opened(url, settings, file)
    assert isinstance(kept.turns, expected)
    assert isinstance(kept.conversations, expected)
    left = sorted(path.name for path in file.parent.glob("kept-*.db"))
    assert left == sorted([file.name, others(file).name] * (expected is DiskTurns))
    if expected is DiskTurns:
        assert await kept.turns.get("a", 60) == b"turn"
        assert await kept.conversations.get("a", 60) == b"head"
    await kept.aclose()


@pytest.mark.usefixtures("folder_in_its_place")
async def test_a_file_that_cannot_be_is_told_and_responses_are_kept_in_memory(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = opened(None, KeptAnswerSettings(), file)
    assert isinstance(kept.turns, MemoryTurns)
    assert isinstance(kept.conversations, MemoryTurns)
    assert "responses are kept in memory until the next start, which loses them: cannot use" in caplog.text
    assert "conversations are kept in memory until the next start, which loses them: cannot use" in caplog.text
    await kept.aclose()
    caplog.clear()
    kept = opened(None, KeptAnswerSettings(disk_megabytes=0), file)
    assert "holds responses of an earlier configuration, and cannot be removed" in caplog.text
    assert "holds conversations of an earlier configuration, and cannot be removed" in caplog.text
    await kept.aclose()
