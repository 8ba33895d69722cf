"""Keys in the explorer have names; two of one name are told apart. Changes against the period before."""

import pytest

from dashboards.pages.explorer import change_cell, labels


def test_a_name_that_two_keys_have_stands_with_the_id() -> None:
    assert labels({"key_1": "chat", "key_2": "chat", "key_3": "batch"}) == {
        "key_1": "chat (key_1)",
        "key_2": "chat (key_2)",
        "key_3": "batch",
    }
    assert labels({}) == {}


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        ("1.5", "1", "+50 %"),
        ("0.5", "1", "−50 %"),
        ("0.998", "1", "0 %"),
        ("1.002", "1", "0 %"),
        ("20", "1", "over 10 ×"),
        ("1", None, "new"),
        ("1", "0", "–"),
    ],
)
def test_a_change_that_rounds_to_nothing_has_no_sign(now: str, before: str | None, shown: str) -> None:
    assert change_cell(now, before).text == shown
