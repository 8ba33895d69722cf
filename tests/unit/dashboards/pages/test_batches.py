"""What the page Batches says about each: how much of it is done, at what cost, and how to send a first one."""

from typing import Any
from urllib.parse import parse_qsl

import pytest

from dashboards.pages.batches import (
    Listed,
    batch_table,
    cost,
    done,
    ended_text,
    no_batches,
    requests_of,
    spent,
    under_way_text,
)
from dashboards.pages.requests import of_batch
from tests.unit.dashboards.views import make_view

MINUTE = 60_000_000


def make_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": "batch_1",
        "status": "in_progress",
        "endpoint": "/v1/chat/completions",
        "team": "red",
        "key_id": "key-1",
        "key": "nightly",
        "total": 200,
        "completed": 90,
        "failed": 10,
        "models": ["large", "small"],
        "cost_usd": "1.250000000000",
        "answers_without_price": 0,
        "created_at_us": MINUTE,
        "deadline_us": 61 * MINUTE,
        "ended_at_us": None,
        "problem": None,
    }
    return row | changes


@pytest.mark.parametrize(
    ("changes", "text", "tone", "bar"),
    [
        ({}, "100 of 200", "warn", 0.5),
        ({"failed": 0}, "90 of 200", "good", 0.45),
        ({"total": 9000, "completed": 8000}, "8,010 of 9,000", "warn", 0.89),
        ({"total": 0, "completed": 0, "failed": 0}, "–", "muted", None),
    ],
)
def test_what_failed_is_done_too_and_shows(changes: dict[str, Any], text: str, tone: str, bar: float | None) -> None:
    cell = done(make_row(**changes))
    assert (cell.text, cell.tone, cell.bar) == (text, tone, None if bar is None else pytest.approx(bar))


@pytest.mark.parametrize(
    ("without", "text", "title"),
    [
        (0, "1.250000000000", ""),
        (1, "1.250000000000", "without 1 answer whose price is unknown"),
        (90, "unknown", "without 90 answers whose price is unknown"),
    ],
)
def test_answers_without_a_price_are_in_no_sum(without: int, text: str, title: str) -> None:
    cell = cost(make_row(answers_without_price=without))
    assert (cell.text, cell.title) == (text, title)


def test_those_under_way_say_when_they_end_and_the_others_when_they_did() -> None:
    shown = batch_table([make_row(key=None, team=None, models=[])])
    assert ">Ends by</th>" in shown
    assert ">1 Jan 01:01</td>" in shown
    assert ">in progress</td>" in shown
    assert ">key-1</td>" in shown
    shown = batch_table([make_row(status="failed", ended_at_us=3 * MINUTE, problem="<empty> in line 2")])
    assert 'title="&lt;empty&gt; in line 2">failed</td>' in shown
    assert ">Ended</th>" in shown
    assert ">1 Jan 00:03</td>" in shown


def test_what_the_ledger_has_of_batches_leads_to_their_models() -> None:
    total = {"requests": 1200, "unpriced_requests": 2, "cost_usd": "3.5"}
    said = spent(total)
    assert "1,200 requests of batches in 30 days, as booked: $3.50, without 2 whose price is unknown." in said
    assert 'href="explorer?by=model&amp;tag=batch&amp;period=30d"' in said


def test_it_is_said_that_a_cost_is_of_the_answers_and_where_what_is_booked_stands() -> None:
    shown = ended_text([make_row(ended_at_us=3 * MINUTE)])
    assert ">Answers cost</th>" in shown
    assert "click a batch for its total in the books" in shown


def test_where_there_are_none_it_is_said_how_one_is_sent() -> None:
    said = no_batches(make_view("entries.read", url="http://<gateway>"))
    assert "No batches yet" in said
    assert "curl http://&lt;gateway&gt;/v1/files" in said
    assert "{&quot;custom_id&quot;: &quot;1&quot;" in said


def test_a_list_says_that_it_loads_its_news_as_long_as_there_will_be_any() -> None:
    total = {"requests": 0}
    said = under_way_text(Listed([make_row()], [], total))
    assert "every 10 seconds while a batch is under way" in said
    assert "<table" in said
    over = under_way_text(Listed([], [make_row(ended_at_us=3 * MINUTE)], total))
    assert "All have ended." in over
    assert "seconds" not in over
    assert "<h2>Ended</h2>" in ended_text([make_row(ended_at_us=3 * MINUTE)])
    assert "The newest 50" in ended_text([make_row(ended_at_us=3 * MINUTE)] * 50)
    assert ended_text([]) == ""


def test_a_batch_leads_to_its_requests_whenever_they_were_asked() -> None:
    address = requests_of(make_row(created_at_us=90 * MINUTE, deadline_us=1530 * MINUTE))
    asked = dict(parse_qsl(address.partition("?")[2]))
    assert asked["batch_id"] == "batch_1"
    assert (asked["since"], asked["until"]) == ("1970-01-01T01:00:00+00:00", "1970-01-02T02:30:00+00:00")
    assert "requests?batch_id=batch_1" in batch_table([make_row()])


@pytest.mark.parametrize(
    ("usd", "unpriced", "said"),
    [
        ("3.5", 0, "1,200 requests of this batch in all: $3.50; 1.20 k tokens in, 40 out."),
        ("3.5", 2, "1,200 requests of this batch in all: $3.50, without 2 whose price is unknown;"),
        (None, 1200, "1,200 requests of this batch in all: no price is known;"),
    ],
)
def test_what_a_batch_came_to_is_never_zero_for_want_of_a_price(usd: str | None, unpriced: int, said: str) -> None:
    cost = {"requests": 1200, "unpriced_requests": unpriced, "input_tokens": 1200, "output_tokens": 40, "cost_usd": usd}
    assert of_batch(cost).startswith(said)
