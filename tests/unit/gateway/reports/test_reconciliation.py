"""Exports of both providers read to the cent, and the likely reason of every kind of difference."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gateway.reports.charged import Charged, UnknownExport, model_key
from gateway.reports.invoices import parse_export
from gateway.reports.reconciliation import Ours, Why, reconcile

DAY = date(2026, 11, 3)
NEXT = date(2026, 11, 4)
START = int(datetime(2026, 11, 3, tzinfo=UTC).timestamp())
DOLLAR = 10**12

OPENAI_COSTS = {
    "object": "page",
    "data": [
        {
            "object": "bucket",
            "start_time": START,
            "end_time": START + 86_400,
            "results": [
                {
                    "object": "organization.costs.result",
                    "amount": {"value": 0.06, "currency": "usd"},
                    "line_item": "gpt-5.4-mini-2026-03-17, input",
                },
                {
                    "object": "organization.costs.result",
                    "amount": {"value": 1.5, "currency": "usd"},
                    "line_item": "gpt-5.4-mini-2026-03-17, output",
                },
                {"object": "organization.costs.result", "amount": {"value": 2, "currency": "usd"}, "line_item": None},
            ],
        }
    ],
}
OPENAI_USAGE = {
    "data": [
        {
            "start_time": START,
            "results": [
                {
                    "object": "organization.usage.completions.result",
                    "input_tokens": 1000,
                    "output_tokens": 500,
                    "input_cached_tokens": 800,
                    "num_model_requests": 5,
                    "model": "gpt-5.4-mini-2026-03-17",
                }
            ],
        }
    ]
}
ANTHROPIC_COSTS = {
    "data": [
        {
            "starting_at": "2026-11-03T00:00:00Z",
            "ending_at": "2026-11-04T00:00:00Z",
            "results": [
                {
                    "currency": "USD",
                    "amount": "123.78912",
                    "cost_type": "tokens",
                    "model": "claude-sonnet-4-5-20250929",
                    "token_type": "output_tokens",
                },
                {"currency": "USD", "amount": "1000", "cost_type": "web_search", "model": None},
            ],
        }
    ],
    "has_more": False,
}
ANTHROPIC_USAGE = {
    "data": [
        {
            "starting_at": "2026-11-03T00:00:00Z",
            "results": [
                {
                    "uncached_input_tokens": 2000,
                    "cache_creation": {"ephemeral_1h_input_tokens": 300, "ephemeral_5m_input_tokens": 1700},
                    "cache_read_input_tokens": 8000,
                    "output_tokens": 900,
                    "model": "claude-sonnet-4-5-20250929",
                }
            ],
        }
    ]
}
OPENROUTER = {
    "data": [
        {
            "date": date,
            "model": "anthropic/claude-sonnet-4.5",
            "model_permaslug": "anthropic/claude-4.5-sonnet-20250929",
            "endpoint_id": "550e8400",
            "provider_name": provider,
            "usage": 0.015,
            "byok_usage_inference": 0.012,
            "requests": 5,
            "prompt_tokens": 50,
            "completion_tokens": 125,
            "reasoning_tokens": 25,
        }
        for date in ("2026-11-03", "2026-11-04 00:00:00")
        for provider in ("Anthropic", "Google")
    ]
}
OPENROUTER_CSV = """\
Date,Slug,Usage,BYOK Usage,Requests,Prompt Tokens,Completion Tokens,Reasoning Tokens
"2026-11-03 00:00:00","anthropic/claude-opus-4.7","430.07","0.2","4115","70965665","3009973","0"
"""
OPENAI_COST_CSV = f"""\
start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id
{START},{START + 86400},2026-11-03T00:00:00+00:00,2026-11-04T00:00:00+00:00,0.1,usd,"gpt-5.4-mini-2026-03-17, input",p
{START},{START + 86400},2026-11-03T00:00:00+00:00,2026-11-04T00:00:00+00:00,0.2,usd,"gpt-5.4-mini-2026-03-17, output",p
{START},{START + 86400},2026-11-03T00:00:00+00:00,2026-11-04T00:00:00+00:00,,,,
"""
OPENAI_USAGE_CSV = f"""\
start_time,end_time,project_id,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens
{START},{START + 86400},p,5,gpt-5.4-mini-2026-03-17,1000,500,800
"""
ANTHROPIC_COST_CSV = """\
usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,cost_type
2026-11-03,Claude Sonnet 4.5,Default,app,message,≤ 200k,input_no_cache,0.01,token
2026-11-03,Claude Sonnet 4.5,Default,app,message,≤ 200k,output,18.71,token
"""
ANTHROPIC_USAGE_CSV = """\
usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,\
usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,\
web_search_count
2026-11-03,claude-sonnet-4-5-20250929,app,Default,standard,≤ 200k,2000,1700,300,8000,900,0
"""
GPT = "gpt-5-4-mini"
CLAUDE = "claude-sonnet-4-5"


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (json.dumps(OPENAI_COSTS), [Charged(DAY, "", 2 * DOLLAR), Charged(DAY, GPT, 156 * DOLLAR // 100)]),
        (
            json.dumps([{**OPENAI_COSTS, "has_more": True}, OPENAI_COSTS]),
            [Charged(DAY, "", 4 * DOLLAR), Charged(DAY, GPT, 312 * DOLLAR // 100)],
        ),
        (json.dumps(OPENAI_USAGE), [Charged(DAY, GPT, None, 5, 1000, 500)]),
        (
            json.dumps(ANTHROPIC_COSTS),
            [Charged(DAY, CLAUDE, 1_237_891_200_000), Charged(DAY, "web-search", 10 * DOLLAR, tool="web_searches")],
        ),
        (json.dumps(ANTHROPIC_USAGE), [Charged(DAY, CLAUDE, None, None, 12_000, 900)]),
        (
            json.dumps(OPENROUTER),
            [Charged(day, "anthropic/claude-sonnet-4-5", 54 * DOLLAR // 1000, 10, 100, 250) for day in (DAY, NEXT)],
        ),
        (OPENROUTER_CSV, [Charged(DAY, "anthropic/claude-opus-4-7", 43_027 * DOLLAR // 100, 4115, 70965665, 3009973)]),
        (OPENAI_COST_CSV, [Charged(DAY, GPT, 3 * DOLLAR // 10)]),
        (
            OPENAI_COST_CSV.replace("gpt-5.4-mini-2026-03-17, input", "priority | gpt-5.4-mini, input, long context"),
            [Charged(DAY, GPT, 3 * DOLLAR // 10)],
        ),
        (
            OPENAI_COST_CSV.replace("gpt-5.4-mini-2026-03-17,", "gpt-audio-mini-2025-12-15 audio,"),
            [Charged(DAY, "gpt-audio-mini", 3 * DOLLAR // 10)],
        ),
        ("\ufeff" + OPENAI_USAGE_CSV, [Charged(DAY, GPT, None, 5, 1000, 500)]),
        (ANTHROPIC_COST_CSV, [Charged(DAY, CLAUDE, 1872 * DOLLAR // 100)]),
        (ANTHROPIC_USAGE_CSV, [Charged(DAY, CLAUDE, None, None, 12_000, 900)]),
    ],
)
def test_every_export_is_read_exactly(export: str, expected: list[Charged]) -> None:
    assert list(parse_export(export).lines) == expected


@pytest.mark.parametrize(
    ("export", "problem"),
    [
        ("", "no known export has the columns"),
        ("," * 1001, "no known export has more than 1,000 columns"),
        ("a,b\n1,2\n", "a, b"),
        ("{", "not valid JSON"),
        ("{}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (OPENAI_COST_CSV + '"' + "x" * 200_000, "cannot be read"),
        ('{"data": [{"start_time": 0, "results": [{"what": 1}]}]}', "what"),
        ('{"data": [{"start_time": 0, "results": [7]}]}', "cannot be read"),
        (json.dumps([OPENAI_COSTS, {**OPENAI_COSTS, "has_more": True}]), "has more pages of it"),
        (json.dumps(OPENAI_COSTS).replace("usd", "eur"), "'eur'"),
        (OPENAI_COST_CSV.replace(",0.1,", ",many,"), "'many' is not an amount"),
        (
            OPENAI_COST_CSV.replace(",0.1,", ',"1,234.56",'),
            "'1,234.56' is not an amount such as 1234.56; if a spreadsheet",
        ),
        (OPENAI_COST_CSV.replace(",0.1,", ",1e30,"), "nobody is charged 1e30"),
        (OPENAI_COST_CSV.replace(",0.1,", ",nan,"), "nobody is charged nan"),
        (json.dumps(OPENAI_COSTS).replace('"value": 2', '"value": Infinity'), "nobody is charged inf"),
        (json.dumps(OPENAI_COSTS).replace(str(START), "1" + "0" * 20), "cannot be read"),
        (json.dumps(OPENAI_USAGE).replace('"gpt-5.4-mini-2026-03-17"', "null"), "names a model"),
        (json.dumps(ANTHROPIC_COSTS).replace('"claude-sonnet-4-5-20250929"', "null"), "description"),
    ],
)
def test_what_is_no_export_is_refused_in_words(export: str, problem: str) -> None:
    with pytest.raises(UnknownExport, match=problem):
        parse_export(export)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gpt-5.4-mini-2026-03-17", GPT),
        ("claude-sonnet-4-5-20250929", CLAUDE),
        ("Claude Sonnet 4.5", CLAUDE),
        ("gpt-4o", "gpt-4o"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
    ],
)
def test_one_model_has_one_spelling(name: str, key: str) -> None:
    assert model_key(name) == key


def ours(**given: Any) -> Ours:
    fields: dict[str, Any] = {
        "day": DAY,
        "model": GPT,
        "requests": 5,
        "input_tokens": 1000,
        "output_tokens": 500,
        "cost_pico_usd": 100 * DOLLAR,
        "lower_pico_usd": 100 * DOLLAR,
        "upper_pico_usd": 100 * DOLLAR,
    }
    return Ours(**{**fields, **given})


def theirs(dollars: float | None = 100.0, **given: Any) -> Charged:
    cost = None if dollars is None else round(dollars * DOLLAR)
    fields: dict[str, Any] = {"day": DAY, "model": GPT, "cost_pico_usd": cost, **given}
    return Charged(**fields)


@pytest.mark.parametrize(
    ("mine", "other", "why"),
    [
        (ours(), theirs(100.4), Why.agrees),
        (ours(), theirs(100.6), Why.unexplained),
        (ours(cost_pico_usd=0), theirs(0.009), Why.agrees),
        (ours(), theirs(None, input_tokens=1002, output_tokens=500), Why.agrees),
        (ours(), theirs(None, input_tokens=1100, output_tokens=500), Why.tokens),
        (ours(unpriced_requests=1), theirs(110), Why.unpriced),
        (ours(estimated_requests=1, upper_pico_usd=120 * DOLLAR), theirs(110), Why.estimated),
        (ours(estimated_requests=1, upper_pico_usd=None), theirs(110), Why.estimated),
        (ours(estimated_requests=1, upper_pico_usd=105 * DOLLAR), theirs(110), Why.unexplained),
        (ours(), theirs(90, input_tokens=1000, output_tokens=500), Why.price),
        (ours(), theirs(110, input_tokens=1100, output_tokens=550), Why.tokens),
    ],
)
def test_the_likely_reason(mine: Ours, other: Charged, why: Why) -> None:
    [row] = reconcile([mine], [other])
    assert row.why is why


def test_usage_that_is_not_counted_in_tokens_has_its_requests_only() -> None:
    result = {
        "object": "organization.usage.images.result",
        "images": 7,
        "num_model_requests": 4,
        "model": "gpt-image-1",
    }
    page = {"data": [{"start_time": START, "results": [result]}]}
    assert parse_export(json.dumps(page)).lines == (Charged(DAY, "gpt-image-1", requests=4),)


@pytest.mark.parametrize(
    ("line_item", "tool"),
    [
        ("web search tool calls", "web_searches"),
        ("file search tool calls", "file_searches"),
        ("code interpreter sessions", "other_tool_calls"),
        ("file search storage", None),
        ("gpt-5-search-api, web search", None),
    ],
)
def test_lines_of_tools_are_known_by_how_they_begin(line_item: str, tool: str | None) -> None:
    export = OPENAI_COST_CSV + f'{START},,2026-11-03T00:00:00+00:00,,0.5,usd,"{line_item}",p\n'
    assert [line.tool for line in parse_export(export).lines if line.cost_pico_usd == DOLLAR // 2] == [tool]


def test_an_export_is_of_its_empty_days_too() -> None:
    empty = [{"start_time": START + days * 86_400, "results": []} for days in (-1, 1)]
    page = {"data": [empty[0], *OPENAI_COSTS["data"], empty[1]]}
    assert parse_export(json.dumps(page)).days == (date(2026, 11, 2), DAY, NEXT)
    rows = OPENAI_COST_CSV + f"{START + 86_400},,2026-11-04T00:00:00+00:00,,,,,\n"
    assert parse_export(rows).days == (DAY, NEXT)
    assert parse_export(ANTHROPIC_COST_CSV).days == (DAY,)


def test_fees_of_tools_are_compared_at_the_models_that_called_them() -> None:
    """In proportion to their calls, to the pico-dollar; a line for calls that are not ours stays as it is."""
    fee = Charged(DAY, "web-search", 7, tool="web_searches")
    other = Charged(NEXT, "web-search", 5 * DOLLAR, tool="web_searches")
    mine = [
        ours(model="a", web_searches=1),
        ours(model="b", web_searches=2, cost_pico_usd=4),
        ours(model="c", file_searches=9),
    ]
    rows = reconcile(mine, [theirs(100, model="a"), theirs(100, model="c"), fee, other])
    assert [(row.ours.model, row.theirs.cost_pico_usd) for row in rows] == [
        ("a", 100 * DOLLAR + 2),
        ("b", 5),
        ("c", 100 * DOLLAR),
        ("web-search", 5 * DOLLAR),
    ]
    assert rows[-1].why is Why.not_ours


def test_what_one_side_lacks_is_named() -> None:
    rows = reconcile([ours(model="a")], [theirs(5, model="b")])
    assert [(row.ours.model, row.why, row.difference_pico_usd) for row in rows] == [
        ("a", Why.not_theirs, -100 * DOLLAR),
        ("b", Why.not_ours, 5 * DOLLAR),
    ]


def test_days_that_are_cut_differently_agree_together() -> None:
    rows = reconcile([ours(), ours(day=NEXT)], [theirs(80), theirs(120, day=NEXT)])
    assert [row.why for row in rows] == [Why.next_day, Why.next_day]
    apart = reconcile([ours(), ours(day=NEXT)], [theirs(80), theirs(130, day=NEXT)])
    assert [row.why for row in apart] == [Why.unexplained, Why.unexplained]


@pytest.mark.parametrize(("theirs", "is_agreed"), [(DOLLAR // 100, True), (DOLLAR // 100 + 10**10 + 1, False)])
def test_a_cent_agrees_however_large_a_share_it_is_and_the_reason_says_so(theirs: int, is_agreed: bool) -> None:
    [row] = reconcile([Ours(DAY, "m", requests=1, cost_pico_usd=10**9)], [Charged(DAY, "m", cost_pico_usd=theirs)])
    assert (row.why is Why.agrees) is is_agreed
    assert "a cent" in Why.agrees


@pytest.mark.parametrize(
    ("meter", "dollars", "is_kept"),
    [
        ("gpt-5-4-mini-spec", 4, True),
        ("gpt-5-4-spec-mini", 4, True),
        ("gpt-5-4-mini-spec", 90, False),  # far more than is missing: another model's
        ("gpt-5-3-mini-spec", 4, False),
        ("gpt-5-4-nano-spec", 4, False),
    ],
)
def test_what_an_unknown_meter_may_have_of_a_model_is_not_taken_out_of_the_books(
    meter: str, dollars: int, is_kept: bool
) -> None:
    day, usd = date(2026, 11, 3), 10**12
    ours = Ours(day, "gpt-5-4-mini", requests=9, cost_pico_usd=24 * usd)
    billed = [Charged(day, name, cost * usd, is_meter=True) for name, cost in ((ours.model, 20), (meter, dollars))]
    [row] = [one for one in reconcile([ours], billed) if one.ours.requests]
    assert row.difference_pico_usd == -4 * usd
    assert (row.why is Why.another_name) == is_kept
