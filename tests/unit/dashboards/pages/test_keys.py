"""What is said about a key that the address names but that cannot be changed."""

from typing import Any

import pytest

from dashboards.pages.keys import Chosen, created, why_not_changed

KEY: dict[str, Any] = {"id": "key_1", "name": "chat <app>", "revoked_at_us": None}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "There is no key with the id 'key_1'."),
        (KEY, None),
        (
            {**KEY, "revoked_at_us": 1_790_000_000_000_000},
            "The key 'chat <app>' was revoked on 21 Sep 2026: it cannot be used or changed again.",
        ),
    ],
)
def test_why_a_key_cannot_be_changed(key: dict[str, Any] | None, said: str | None) -> None:
    assert why_not_changed(Chosen("key_1", key)) == said


def test_a_key_that_came_from_litellm_says_so() -> None:
    came = {"created_at_us": 1_790_000_000_000_000, "taken_over_from": "LiteLLM"}
    assert created(came).text == "21 Sep 2026, from LiteLLM"
    assert created({**came, "taken_over_from": None}).text == "21 Sep 2026"
