"""Budgets hold the price of a provider's own tools, as often as the request lets them run."""

import asyncio
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from backends.protocol import Operation
from backends.scripted import Outcome, follow
from backends.translating import TranslatingBackend
from backends.usage import Usage
from gateway.access.keys import KeyRecord, hash_key
from gateway.errors import BudgetExhausted, Forbidden, InvalidRequest
from gateway.limits.admission import Admission
from gateway.limits.values import parse_limits
from gateway.pipeline import Incoming
from gateway.pricing.catalogue import ModelPrices, Service
from gateway.request.bodies import NamedModels
from gateway.request.cost_bounds import bound_pico_usd
from gateway.request.hosted_tools import ASSUMED_CALLS, TOOL_RESULT_TOKENS, limit_calls
from gateway.request.view import parse_request
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.rig import KEY, PEPPER, RecordingCaller, Rig

CENT = 10**10
PRICES = replace(make_prices(1.0, 4.0), web_search_pico_usd=CENT, file_search_pico_usd=CENT // 4)
WEB, FILES = {"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["v"]}
FUNCTION = {"type": "function", "name": "search", "parameters": {}}
LATER = {"type": "additional_tools", "role": "developer", "tools": [WEB]}
CLAUDES = {"type": "web_search_20250305", "name": "web_search"}
PAGES = {"type": "web_fetch_20250910", "name": "web_fetch"}
ADVISOR = {"type": "advisor_20260301", "name": "advisor", "model": "dear"}


def defining(tool: dict[str, Any]) -> dict[str, Any]:
    """Messages of which one defines a tool (Anthropic's beta inline-tools)."""
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    return {"messages": [{"role": "user", "content": "hello"}, {"role": "system", "content": [added]}]}


def body_of(operation: Operation, **fields: Any) -> bytes:
    said: dict[Operation, dict[str, Any]] = {
        "responses": {"input": "hello"},
        "messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10},
        "chat.completions": {"messages": [{"role": "user", "content": "hello"}]},
        "completions": {"prompt": "hello"},
        "embeddings": {"input": "hello"},
    }
    return json.dumps({"model": "auto", **said[operation], **fields}).encode()


def bound(operation: Operation, prices: ModelPrices = PRICES, **fields: Any) -> int | None:
    return bound_pico_usd(make_candidate(prices=prices), parse_request(operation, body_of(operation, **fields)))


def held_for_tools(operation: Operation, prices: ModelPrices = PRICES, **fields: Any) -> float | None:
    """What the tools add to the bound, without their results as input; their definitions are a few tokens."""
    with_tools = bound(operation, prices, **fields)
    plain = bound(operation, prices)
    assert plain is not None
    return None if with_tools is None else round((with_tools - plain) / CENT, 2)


def held(calls: int, cents: float) -> float:
    """A call and its result, in cents: 10,000 tokens at a dollar a million are one."""
    return calls * (cents + TOOL_RESULT_TOKENS * 1e6 / CENT)


@pytest.mark.parametrize(
    ("operation", "fields", "expected"),
    [
        ("responses", {"tools": [FUNCTION]}, 0),
        ("responses", {"tools": [{"type": "shell", "environment": {"type": "local"}}]}, 0),
        ("responses", {"tools": ["web_search", None, {"type": ["web_search"]}]}, 0),
        ("responses", {"tools": [WEB]}, held(ASSUMED_CALLS, 1)),
        ("responses", {"tools": [WEB], "max_tool_calls": 2}, held(2, 1)),
        ("responses", {"tools": [WEB], "max_tool_calls": "two"}, held(ASSUMED_CALLS, 1)),
        ("responses", {"tools": [FILES], "max_tool_calls": 2}, held(2, 0.25)),
        ("responses", {"tools": [FUNCTION, FILES, WEB], "max_tool_calls": 3}, held(3, 1)),
        ("messages", defining({**CLAUDES, "max_uses": 2}), held(2, 1)),
        ("messages", {**defining({**CLAUDES, "max_uses": 2}), "tools": [CLAUDES]}, held(2 + ASSUMED_CALLS, 1)),
        ("messages", defining(CLAUDES), held(ASSUMED_CALLS, 1)),
        ("messages", defining(FUNCTION), 0),
        ("responses", {"input": [LATER]}, held(ASSUMED_CALLS, 1)),
        ("responses", {"input": [LATER], "tools": [FILES], "max_tool_calls": 2}, held(2, 1)),
        ("responses", {"input": [LATER | {"tools": "web_search"}]}, 0),
        ("responses", {"tools": [{"type": "code_interpreter"}]}, None),
        ("responses", {"tools": [{"type": "web_search_preview"}], "max_tool_calls": 1}, None),
        ("responses", {"tools": [{"type": "code_execution"}]}, None),
        ("responses", {"tools": [FUNCTION, {"type": "collections_search"}]}, None),
        ("responses", {"tools": [{"type": "openrouter:image"}]}, None),
        ("responses", {"plugins": [{"id": "web"}]}, held(ASSUMED_CALLS, 1)),
        ("responses", {"plugins": [{"id": "web"}], "tools": [WEB], "max_tool_calls": 2}, held(2 + ASSUMED_CALLS, 1)),
        ("messages", {"tools": [{"type": "openrouter:web_search"}]}, None),
        ("messages", {"tools": [CLAUDES]}, held(ASSUMED_CALLS, 1)),
        ("messages", {"tools": [{**CLAUDES, "max_uses": 2}, FUNCTION]}, held(2, 1)),
        ("messages", {"tools": [{**CLAUDES, "max_uses": 2}, {"type": "web_fetch_20250910"}]}, held(7, 1)),
        ("messages", {"tools": [{"type": "web_fetch_20250910", "max_uses": 3}]}, held(3, 0)),
        ("messages", {"tools": [PAGES | {"max_uses": 3, "max_content_tokens": 50_000}]}, held(15, 0)),
        ("messages", {"tools": [PAGES | {"max_uses": 3, "max_content_tokens": 5}]}, held(3, 0)),
        ("chat.completions", {"tools": [FUNCTION]}, 0),
        ("chat.completions", {"plugins": [{"id": "file-parser"}]}, None),
        ("chat.completions", {"plugins": "web"}, held(ASSUMED_CALLS, 1)),
        ("chat.completions", {"web_search_options": {}}, held(ASSUMED_CALLS, 1)),
        ("chat.completions", {"enable_search": True}, held(ASSUMED_CALLS, 1)),
        ("chat.completions", {"enable_search": False}, 0),
        ("chat.completions", {"tools": [{"type": "custom", "custom": {"name": "a"}}, {"function": {"name": "b"}}]}, 0),
        ("chat.completions", {"tools": ["browser_search", None, {"type": ["browser_search"]}]}, 0),
        ("chat.completions", {"tools": [FUNCTION, {"type": "browser_search"}]}, None),
        ("chat.completions", {"tools": [{"type": "openrouter:web_search"}]}, None),
        ("chat.completions", {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]}, None),
        ("chat.completions", {"tools": [{"type": "x"}], "plugins": [{"id": "web"}]}, None),
    ],
)
def test_what_is_held(operation: Operation, fields: dict[str, Any], expected: float | None) -> None:
    assert held_for_tools(operation, **fields) == (None if expected is None else pytest.approx(expected, abs=0.02))


def test_a_model_that_searches_for_a_fee_a_request_is_held_that_fee() -> None:
    searching = replace(PRICES, per_request_pico_usd=3 * CENT)
    results = ASSUMED_CALLS * TOOL_RESULT_TOKENS * PRICES.rates.input
    plain, with_searches = (
        bound("chat.completions", searching),
        bound("chat.completions", searching, web_search_options={}),
    )
    assert plain is not None
    assert with_searches is not None
    assert (with_searches - plain - results) / CENT == pytest.approx(0, abs=0.02), "the body is a few bytes longer"


def test_an_escape_hides_no_tool() -> None:
    body = body_of("responses", tools=[WEB]).replace(b"web_search", b"web\\u005fse\\u0061rch")
    assert parse_request("responses", body).hosted_tools.calls == ASSUMED_CALLS
    body = body_of("chat.completions", tools=[{"type": "browser_search"}]).replace(b"type", b"ty\\u0070e")
    assert parse_request("chat.completions", body).hosted_tools.kinds == {"other"}


def test_a_kind_that_stands_twice_hides_no_tool() -> None:
    """Most parsers take the last one."""
    body = body_of("chat.completions", tools=[{"type": "function", "kind": "browser_search"}])
    assert parse_request("chat.completions", body.replace(b"kind", b"type")).hosted_tools.kinds == {"other"}


@pytest.mark.parametrize("odd", ["1e400", "[" * 900 + "]" * 900, "[1, 2]"])
def test_nothing_odd_beside_it_hides_a_tool(odd: str) -> None:
    raw = odd.encode()
    tool = b'{"environment": %s, "type": "web_search", "max_uses": %s}' % (raw, raw)
    body = b'{"model": "auto", "input": "hello", "tools": [%s]}' % tool
    assert parse_request("responses", body).hosted_tools.calls == ASSUMED_CALLS
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "a"}], "plugins": %s}' % raw
    assert parse_request("chat.completions", body).hosted_tools.calls == ASSUMED_CALLS


@pytest.mark.parametrize(
    ("operation", "fields", "written"),
    [
        ("responses", {"tools": [WEB]}, {"tools": [WEB], "max_tool_calls": ASSUMED_CALLS}),
        ("responses", {"input": [LATER]}, {"input": [LATER], "max_tool_calls": ASSUMED_CALLS}),
        ("responses", {"tools": [WEB], "max_tool_calls": 99.0}, {"max_tool_calls": ASSUMED_CALLS}),
        (
            "messages",
            {"tools": [PAGES | {"max_uses": "99", "max_content_tokens": 9e9}]},
            {"tools": [PAGES | {"max_uses": ASSUMED_CALLS, "max_content_tokens": TOOL_RESULT_TOKENS}]},
        ),
        ("responses", {"tools": [WEB], "max_tool_calls": 9}, {"tools": [WEB], "max_tool_calls": 9}),
        (
            "messages",
            {"tools": [FUNCTION, CLAUDES, {**CLAUDES, "max_uses": 9}]},
            {"tools": [FUNCTION, {**CLAUDES, "max_uses": ASSUMED_CALLS}, {**CLAUDES, "max_uses": 9}]},
        ),
        (
            "messages",
            {"tools": [PAGES | {"max_uses": 9}]},
            {"tools": [PAGES | {"max_uses": 9, "max_content_tokens": TOOL_RESULT_TOKENS}]},
        ),
        (
            "messages",
            {**defining(CLAUDES), "tools": [CLAUDES]},
            {**defining(CLAUDES | {"max_uses": ASSUMED_CALLS}), "tools": [CLAUDES | {"max_uses": ASSUMED_CALLS}]},
        ),
        ("messages", {**defining(CLAUDES), "tools": None}, defining(CLAUDES | {"max_uses": ASSUMED_CALLS})),
        ("messages", {**defining(FUNCTION), "tools": [CLAUDES | {"max_uses": 9}]}, defining(FUNCTION)),
        ("chat.completions", {"web_search_options": {}}, {"web_search_options": {}}),
    ],
)
def test_the_assumed_limit_is_written_where_none_is_stated(
    operation: Operation, fields: dict[str, Any], written: dict[str, Any]
) -> None:
    body = body_of(operation, **fields)
    limited = json.loads(limit_calls(body, parse_request(operation, body).hosted_tools))
    assert limited == {**json.loads(body), **written}


def on_a_budget(usd: str, usage: Usage) -> Rig:
    rig = Rig(
        one=follow([Outcome(usage=usage)]),
        admission=Admission(limits={"key-1": parse_limits({"budget_usd": usd})}, wait_seconds=0.0),
    )
    only = make_candidate("a", backend="one", prices=PRICES)
    rig.pipeline.snapshot = make_snapshot("version: 1\nrules: [{name: r, choose: {from: [a]}}]", [only])
    return rig


async def send(rig: Rig, body: bytes, operation: Operation = "chat.completions") -> None:
    await rig.pipeline.answer(Incoming(operation, f"Bearer {KEY}", body), RecordingCaller())


async def test_parallel_requests_that_search_spend_no_more_than_their_budget() -> None:
    """Each may search once: a cent, and a cent for what it finds; ten cents fund four of them, not the 36 of before."""
    searching = Usage(input_tokens=10_000, output_tokens=4, web_searches=1)
    rig = on_a_budget("0.10", searching)
    body = body_of("responses", tools=[WEB], max_tool_calls=1, max_output_tokens=5)
    asked = [send(rig, body, "responses") for _ in range(36)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, BudgetExhausted)]
    assert len(refused) + len(rig.ledger.entries) == 36
    assert rig.ledger.entries
    spent = sum(entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost)
    assert spent <= 10 * CENT
    assert all(entry.web_searches for entry in rig.ledger.entries)


async def test_a_chats_tools_that_its_provider_runs_are_refused_under_a_budget_alone() -> None:
    """Nothing used to be held for them, and no answer reports their cost."""
    rig = on_a_budget("1", Usage(input_tokens=10, output_tokens=4))
    with pytest.raises(BudgetExhausted, match="leave the tool out"):
        await rig.ask(tools=[{"type": "browser_search"}])
    rig.pipeline.admission.limits = {}
    await rig.ask(tools=[{"type": "browser_search"}])
    assert rig.entry.intent.cost_bound_pico_usd is None


async def test_a_tool_of_unknown_price_is_refused_under_a_budget_alone() -> None:
    rig = on_a_budget("1", Usage(input_tokens=10, output_tokens=4))
    unpriced = make_candidate("a", backend="one", prices=make_prices(1.0, 4.0))
    rig.pipeline.snapshot = make_snapshot("version: 1\nrules: [{name: r, choose: {from: [a]}}]", [unpriced])
    with pytest.raises(BudgetExhausted, match="leave the tool out"):
        await rig.ask(web_search_options={})
    rig.pipeline.admission.limits = {}
    await rig.ask(web_search_options={})
    assert rig.entry.intent.cost_bound_pico_usd is None


ADVISED: dict[str, Any] = {"tools": [ADVISOR]}
FALLEN_BACK: dict[str, Any] = {"fallbacks": [{"model": "dear"}]}


DRAWN: dict[str, Any] = {"tools": [{"type": "image_generation", "model": "dear"}]}
SUBAGENT: dict[str, Any] = {"tools": [{"type": "openrouter:subagent", "parameters": {"model": "dear"}}]}
FUSION: dict[str, Any] = {"plugins": [{"id": "web"}, {"id": "fusion", "analysis_models": ["dear"]}]}


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        ("messages", ADVISED),
        ("messages", FALLEN_BACK),
        ("messages", defining(ADVISOR)),
        ("messages", FUSION),
        ("messages", SUBAGENT),
        ("messages", {"models": ["dear"]}),
        ("responses", DRAWN),
        ("responses", {"input": [LATER | DRAWN]}),
        ("responses", SUBAGENT),
        ("responses", FUSION),
        ("responses", FALLEN_BACK),
        ("chat.completions", FUSION),
        ("chat.completions", SUBAGENT),
        ("chat.completions", FALLEN_BACK),
        ("chat.completions", {"context_window_fallbacks": [{"a": ["dear"]}]}),
        ("completions", {"router_settings_override": FALLEN_BACK}),
        *(("embeddings", {name: ["dear"]}) for name in NamedModels.__struct_fields__),
    ],
)
async def test_models_that_a_request_names_beside_its_own_are_for_keys_that_may_use_any_and_have_no_budget(
    operation: Operation, asked: dict[str, Any]
) -> None:
    body = body_of(operation, **asked)
    rig = on_a_budget("1", Usage(input_tokens=10, output_tokens=4))
    rig.pipeline.backends = {
        "one": TranslatingBackend(rig.one, native={"messages", "responses", "completions", "embeddings"})
    }
    with pytest.raises(BudgetExhausted, match="leave the tool out"):
        await send(rig, body, operation)
    rig.pipeline.admission.limits = {}
    await send(rig, body, operation)
    restricted = KeyRecord("key-1", "test", "app", allowed_models=frozenset({"a"}))
    rig.pipeline.keys.replace({hash_key(PEPPER, KEY): restricted})
    with pytest.raises(Forbidden, match=r"names others besides its `model`.*Send it without"):
        await send(rig, body, operation)
    await send(rig, body_of(operation), operation)
    assert len(rig.ledger.entries) == 2


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 1),
        ({"speed": "standard", "inference_geo": "global"}, 1),
        ({"speed": "fast"}, 6),
        ({"speed": "fast", "inference_geo": "us"}, 6.6),
        ({"inference_geo": "eu"}, None),
        ({"speed": {"not": "text"}}, 1),
    ],
)
def test_fast_answers_and_such_of_one_country_are_held_at_their_price(
    asked: dict[str, Any], expected: float | None
) -> None:
    dearer = replace(PRICES, services={"fast": Service(Fraction(6)), "us": Service(Fraction(11, 10))})
    long = {"messages": [{"role": "user", "content": "word " * 10_000}]}
    plain, held_for_it = bound("messages", dearer, **long), bound("messages", dearer, **long, **asked)
    assert plain is not None
    assert expected == (None if held_for_it is None else pytest.approx(held_for_it / plain, abs=0.02))


async def test_a_key_that_stands_twice_is_told_and_nothing_is_held() -> None:
    rig = on_a_budget("1", Usage(input_tokens=10, output_tokens=4))
    with pytest.raises(InvalidRequest, match="appears twice"):
        await send(rig, b'{"model": "auto", "messages": [{"role": "user", "content": "a"}], "model": "auto"}')
    assert not rig.ledger.open
