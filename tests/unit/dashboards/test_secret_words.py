"""What is said about old secrets before somebody ends them."""

from typing import Any

import pytest

from dashboards.secret_words import is_used, old_secrets_text

MINUTE = 60_000_000


def old(ends: int, last_used: int | None = None) -> dict[str, Any]:
    last_used_at_us = None if last_used is None else last_used * MINUTE
    return {"replaced_at_us": 0, "ends_at_us": ends * MINUTE, "last_used_at_us": last_used_at_us}


@pytest.mark.parametrize(
    ("secrets", "said", "used"),
    [
        ([old(60)], "the old secret works until 1 Jan 1970 01:00:00 UTC, not used since the new one was made", False),
        ([old(60, 2)], "the old secret works until 1 Jan 1970 01:00:00 UTC, last used 1 Jan 1970 00:02:00 UTC", True),
        (
            [old(120), old(60, 2)],
            "2 old secrets work, the last until 1 Jan 1970 02:00:00 UTC, last used 1 Jan 1970 00:02:00 UTC",
            True,
        ),
    ],
)
def test_until_when_and_whether_in_use(secrets: list[dict[str, Any]], said: str, used: bool) -> None:
    assert (old_secrets_text(secrets), is_used(secrets)) == (said, used)
