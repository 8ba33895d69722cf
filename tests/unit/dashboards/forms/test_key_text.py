"""A key's fields as text and back: saving what is shown changes nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.forms.key_text import (
    changed,
    expires_at_us,
    last_day,
    merged,
    quotas,
    quotas_text,
    require_to_come,
    words,
)
from dashboards.forms.problem import WrongField
from gateway.instants import DAY_US


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, []), ("", []), (" , ,", []), ("a", ["a"]), (" a , b c,a", ["a", "b c"])],
)
def test_words(text: str | None, found: list[str]) -> None:
    assert words(text) == found


def test_a_key_works_through_its_last_day() -> None:
    end = round(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    assert expires_at_us("2026-12-31") == end
    assert last_day(end) == "2026-12-31"
    assert last_day(end - 1) == "2026-12-31"
    assert last_day(end + 1) == "2027-01-01"
    assert (expires_at_us(""), expires_at_us(None), last_day(None)) == (None, None, "")
    assert last_day(1 << 62) == "9999-12-31", "earlier versions took any number"
    assert last_day(expires_at_us("9999-12-31")) == "9999-12-31"


def test_every_midnight_is_shown_as_the_day_that_gives_it_back() -> None:
    for day in range(1, 40_000, 7):
        assert expires_at_us(last_day(day * DAY_US)) == day * DAY_US


def test_quotas_are_read_as_they_are_written() -> None:
    stored: dict[str, Any] = {
        "premium": {"requests": 100, "window": "day"},
        "cheap": {"requests": 5, "window": "total"},
    }
    assert quotas_text(stored) == "premium=100/day, cheap=5/total"
    assert quotas(quotas_text(stored)) == stored
    assert quotas_text({"premium": {"requests": 3}}) == "premium=3/day"
    assert quotas("") == {}


@pytest.mark.parametrize(
    "text", ["premium", "premium=3", "=3/day", "premium=x/day", "premium=-3/day", "premium=3/year"]
)
def test_a_quota_that_is_none_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quota such as premium=100/day"):
        quotas(text)


def test_a_day_that_is_none_is_said() -> None:
    with pytest.raises(WrongField, match="is not a day such as 2026-12-31") as raised:
        expires_at_us("tomorrow")
    assert raised.value.field == "last_day"


def test_only_what_is_another_is_sent() -> None:
    before = {"team": "red", "tags": ["a"], "expires_at_us": None}
    assert changed(before, {"team": "red", "tags": ["a", "b"], "expires_at_us": None}) == {"tags": ["a", "b"]}


def test_a_limit_that_someone_else_set_meanwhile_stays() -> None:
    before = {"budget_usd": "100", "budget_window": "month", "requests_per_minute": 60}
    lowered = {"budget_usd": "20", "requests_per_minute": 60, "tokens_per_minute": 9}
    faster = {**before, "requests_per_minute": 90}
    assert merged(before, faster, lowered) == {**lowered, "requests_per_minute": 90}
    without_rate = {"budget_usd": "100", "budget_window": "month"}
    assert merged(before, without_rate, lowered) == {"budget_usd": "20", "tokens_per_minute": 9}
    assert merged({}, without_rate, {"tokens_per_minute": 9}) == {**without_rate, "tokens_per_minute": 9}


def test_a_key_that_would_have_ended_already_is_told_its_day_and_not_a_count_of_microseconds() -> None:
    end = expires_at_us("2026-11-24")
    assert end is not None
    require_to_come(end, end - 1)
    require_to_come(None, end)
    with pytest.raises(ValueError, match="The last day 2026-11-24 is past"):
        require_to_come(end, end)
