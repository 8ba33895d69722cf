"""A request's own page: what was booked, what was corrected, and the total, in one place."""

import re
from decimal import Decimal
from typing import Any

import pytest

from dashboards import display
from dashboards.pages.request import (
    attempts_table,
    corrections_table,
    cost_note,
    decision_facts,
    latency,
    whose_model,
    why_no_lines,
)
from dashboards.pages.requests import in_all, requests_table, ways_on

ENTRY: dict[str, Any] = {
    "request_id": "0" * 32, "accepted_at_us": 1_790_000_000_000_000, "model": "small", "team": None, "rule": "default",
    "status": "completed", "difficulty": None, "input_tokens": 10, "output_tokens": 2,
    "time_to_first_token_seconds": 0.5, "decode_tokens_per_second": 20.0, "is_simulated": False,
    "cost_usd": "0.002000000000", "corrections_usd": "0.000000000000", "corrected_cost_usd": "0.002000000000",
    "cost_lower_usd": "0.002000000000", "cost_upper_usd": "0.002000000000", "corrections": [],
}  # fmt: skip


def corrected(booked: str | None, amounts: list[str], total: str) -> dict[str, Any]:
    each = [
        {
            "at_us": 1_790_000_100_000_000,
            "kind": "reprice",
            "reference": "2026-11",
            "reason": "<why>",
            "amount_usd": one,
        }
        for one in amounts
    ]
    text = str(sum(Decimal(one) for one in amounts))
    return {**ENTRY, "cost_usd": booked, "corrections": each, "corrections_usd": text, "corrected_cost_usd": total}


def amounts_in(table: str) -> list[str]:
    return re.findall(r'<td class="be-number [^"]*"[^>]*>([^<]*)</td>', table)


@pytest.mark.parametrize(
    ("booked", "shown"), [("0.002000000000", ["$0.0020", "$0.0005", "−$0.0010", "$0.0015"]), (None, ["unknown"])]
)
def test_corrections_go_from_what_was_booked_to_what_it_is(booked: str | None, shown: list[str]) -> None:
    one = corrected(booked, ["0.000500000000", "-0.001000000000"], "0.001500000000")
    table = corrections_table(one)
    assert amounts_in(table)[: len(shown)] == shown
    assert "&lt;why&gt;" in table
    assert "booked at settlement: " in cost_note(one)
    assert "corrections: −$0.0005" in cost_note(one)


def test_without_corrections_the_cost_is_what_was_booked() -> None:
    assert cost_note(ENTRY) == "exact, as the provider counted"


@pytest.mark.parametrize(
    ("status", "said"), [("completed", "`breakeven prices reprice` books it once it is."), ("orphaned", "died before")]
)
def test_what_no_price_can_be_found_for_is_not_promised_one(status: str, said: str) -> None:
    one = {**ENTRY, "status": status, "cost_usd": None, "other_tool_calls": 0}
    assert said in why_no_lines(one)
    assert ("reprice" in why_no_lines(one)) is (status == "completed")


@pytest.mark.parametrize(
    ("status", "is_stream", "label", "total", "first_token", "attempts"),
    [
        ("completed", False, "Answered by", "2.00 s", "not measured: the answer was not streamed", "response cache"),
        ("completed", True, "Answered by", "2.00 s", "not measured<", "response cache"),
        ("cancelled", True, "Chosen", "2.00 s", "none: no answer came", "before any attempt had ended"),
        ("failed", True, "Chosen", "2.00 s", "none: no answer came", "before any model was asked"),
        ("orphaned", True, "Chosen", display.UNKNOWN, "unknown: the process that", "nothing is known"),
    ],
)
def test_what_came_to_nothing_is_not_told_as_an_answer(
    status: str, is_stream: bool, label: str, total: str, first_token: str, attempts: str
) -> None:
    times = {"time_to_first_token_seconds": None, "total_seconds": 2.0}
    one = {**ENTRY, **times, "status": status, "is_stream": is_stream, "attempts": []}
    assert whose_model(one) == label
    assert f"<dd>{total}</dd>" in latency(one).replace("\N{NO-BREAK SPACE}", " ")
    assert first_token in latency(one)
    assert attempts in attempts_table(one)


def test_a_model_that_failed_is_not_one_that_answered() -> None:
    tried = {"number": 1, "model": "small", "backend": "x", "outcome": "UpstreamTimeout", "cost_usd": "0.01"}
    tried |= {"started_after_seconds": 0.0, "lasted_seconds": 30.0, "http_status": None}
    one = {**ENTRY, "status": "failed", "attempts": [tried]}
    assert whose_model(one) == "Asked last"
    assert whose_model({**one, "attempts": [tried, {**tried, "outcome": "answered"}]}) == "Answered by"
    assert "UpstreamTimeout" in attempts_table(one)


def test_the_list_has_the_corrected_cost_of_those_that_were_corrected() -> None:
    assert "Corrected" not in requests_table([ENTRY])
    both = requests_table([ENTRY, corrected("0.002000000000", ["0.001000000000"], "0.003000000000")])
    first, second = amounts_in(both)[:7], amounts_in(both)[7:]
    assert first[:2] == ["$0.0020", ""], "beside the team, in sight on a tablet"
    assert second[:2] == ["$0.0020", "$0.0030"]


@pytest.mark.parametrize(
    ("order", "labels"),
    [
        ("newest", ["Newest requests", "Older requests"]),
        ("cost", ["Most expensive requests", "The next 50"]),
        ("total_time", ["Longest requests", "The next 50"]),
        ("first_token", ["Slowest first token requests", "The next 50"]),
    ],
)
def test_every_order_has_a_way_on_and_back_to_its_beginning(order: str, labels: list[str]) -> None:
    both = ways_on(order, first="requests?a=1&b=2", further="requests?before=1")
    assert re.findall(r">([^<]+)</a>", both) == labels
    assert 'href="requests?a=1&amp;b=2"' in both
    assert re.findall(r">([^<]+)</a>", ways_on(order, first=None, further="requests?before=1")) == labels[1:]
    assert ways_on(order, first=None, further=None) == ""


def test_a_time_of_two_years_shows_the_year_of_each() -> None:
    one = {**ENTRY, "accepted_at_us": 1_790_000_000_000_000}
    assert ">21 Sep 14:13:20<" in requests_table([one])
    assert ">21 Sep 2026 14:13:20<" in requests_table([one], has_years=True)


def test_by_total_time_the_list_shows_it() -> None:
    one = {**ENTRY, "total_seconds": 77.25}
    assert ">77.25<" in requests_table([one], order="total_time")
    assert "77.25 s" not in requests_table([one])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "1,364 requests in this time: $16.89; 3.67 M tokens in, 675 k out."),
        ({"requests": 1}, "1 request in this time: $16.89; "),
        ({"unpriced_requests": 12}, "$16.89, without 12 whose price is unknown; "),
        ({"unpriced_requests": 1364, "cost_usd": "0"}, "1,364 requests in this time: no price is known; "),
    ],
)
def test_the_sum_of_all_that_match_says_what_it_leaves_out(changes: dict[str, Any], said: str) -> None:
    total = {
        "requests": 1364,
        "unpriced_requests": 0,
        "cost_usd": "16.893618333184",
        "input_tokens": 3_670_068,
        "output_tokens": 674_598,
    }
    assert said in in_all({**total, **changes})


def test_a_request_leads_to_those_of_its_month_that_share_its_tag_and_key() -> None:
    one = {
        **ENTRY,
        "key_id": "key_1",
        "project": None,
        "tags": ["a&b", "eu"],
        "batch_id": None,
        "end_user": "user 7",
        "operation": "judge",
        "requested_model": "auto",
        "candidates": ["small", "big"],
        "predicted_quality": {"small": 0.604},
        "uncertainty": None,
        "expected_cost_usd": None,
        "propensity": 1.0,
        "rules_version": "r1-e5",
        "classifier_version": "c1",
    }
    decision = decision_facts(one, "nightly")
    assert '"requests?tag=a%26b&amp;since=2026-09-01T' in decision
    assert '"requests?key_id=key_1&amp;since=2026-09-01T' in decision
    assert "until=2026-10-01T" in decision
    assert '">nightly</a>' in decision
    assert "small (0.60), big" in decision
    assert "judge" in decision
    assert '"rules?version=r1"' in decision
    assert "rules?version" not in decision_facts({**one, "rules_version": "e5"}, None)
    assert f"<code>{ENTRY['request_id']}</code>" in decision
    assert "Batch" not in decision
    assert '"requests?end_user=user+7&amp;since=2026-09-01T' in decision
    assert '"requests?batch_id=batch_1&amp;since=2026-09-01T' in decision_facts({**one, "batch_id": "batch_1"}, None)
