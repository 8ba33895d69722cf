"""What changed is said in words a person would use, and what is not known is not guessed."""

import json

import pytest

from dashboards.audit_text import change_text

BUDGET = {"before_usd": None, "after_usd": "5.610000000000", "stopped_before": None, "stops": False}
AT_ONCE = {"requests_per_minute": 9, "max_parallel_requests": 4}
KEY = {"role": "app", "team": "red", "project": None, "limits": json.dumps({"budget_usd": "1"})}


@pytest.mark.parametrize(
    ("action", "detail", "text"),
    [
        ("budget.set", json.dumps(BUDGET), "$5.61 a month, warns when spent"),
        (
            "budget.set",
            json.dumps({**BUDGET, "before_usd": "4", "stops": True}),
            "$4.00 → $5.61 a month, refuses when spent",
        ),
        ("budget.set", json.dumps({"before_usd": None, "after_usd": "5"}), "$5.00 a month, warns when spent"),
        ("budget.set", json.dumps({**BUDGET, "after_usd": "0.540000000000"}), "$0.54 a month, warns when spent"),
        ("budget.set", json.dumps({**BUDGET, "after_usd": "123.456"}), "$123.456 a month, warns when spent"),
        ("key.create", json.dumps(KEY), "app, team red, $1.00 a month"),
        (
            "key.create",
            json.dumps({**KEY, "limits": json.dumps({"budget_usd": "0.5", "end_user_budget_usd": "0.1"})}),
            "app, team red, $0.50 a month, $0.10 a month for each end user",
        ),
        ("key.create", json.dumps({**KEY, "limits": "{}"}), "app, team red"),
        (
            "key.change",
            json.dumps({"before": {"limits": {}}, "after": {"limits": {"requests_per_minute": 9}}}),
            "none → 9 requests / min",
        ),
        (
            "key.change",
            json.dumps({"before": {"limits": {"requests_per_minute": 1}}, "after": {"limits": AT_ONCE}}),
            "1 request / min → 9 requests / min, 4 at once",
        ),
        (
            "key.change",
            json.dumps(
                {
                    "before": {"team": None, "tags": ["a"], "allowed_models": None, "expires_at_us": None},
                    "after": {"team": "red", "tags": [], "allowed_models": ["m"], "expires_at_us": 86_400_000_000},
                }
            ),
            "team none → red; tags a → none; models all → m; last day none → 1 Jan 1970",
        ),
        ("rules.activate", "--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z", "lines: +2 −1"),
        ("rules.put", "", "–"),
        ("key.revoke", "{}", "–"),
        (
            "key.rotate",
            json.dumps({"overlap_seconds": 60, "old_secrets_end_at_us": 86_460_000_000}),
            "new secret; the old one works until 2 Jan 1970 00:01:00 UTC",
        ),
        (
            "key.rotate",
            json.dumps({"overlap_seconds": 0, "old_secrets_end_at_us": 5}),
            "new secret; the old one ended",
        ),
        ("something.new", "as it is", "as it is"),
    ],
)
def test_a_change_in_words(action: str, detail: str, text: str) -> None:
    assert change_text(action, detail) == text
