"""What the page Budgets says of notices."""

from dashboards.pages.budgets import failing_note

MINUTE = 60_000_000


def test_only_a_notice_that_waits_is_spoken_of() -> None:
    waits = {"failing_since_us": MINUTE, "failed_at_us": 3 * MINUTE, "next_try_at_us": 4 * MINUTE, "problem": "<500>"}
    said = failing_note(waits)
    assert "A notice of a budget waits to be sent" in said
    assert "Since 1 Jan 1970 00:01:00 UTC: &lt;500&gt;. Last tried 1 Jan 1970 00:03:00 UTC, again about" in said
    assert failing_note({**waits, "failing_since_us": None}) == ""
