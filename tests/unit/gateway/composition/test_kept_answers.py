"""For how long responses are kept for those who go on from them, where nobody said."""

import pytest

from gateway.composition.kept_answers import open_kept_answers
from gateway.config.settings import KeptAnswerSettings

REDIS = "redis://127.0.0.1:6379/0"
DAY = 86_400


@pytest.mark.parametrize(
    ("url", "hours", "seconds"),
    [(None, None, DAY), (None, 0, 0), (None, 0.5, 1800), (REDIS, None, 0), (REDIS, 0, 0), (REDIS, 24, DAY)],
)
async def test_a_day_in_memory_and_in_a_redis_only_if_asked(
    url: str | None, hours: float | None, seconds: float
) -> None:
    kept = open_kept_answers(url, KeptAnswerSettings(response_hours=hours))
    assert kept.turn_seconds == seconds
    await kept.aclose()
