"""The view of calls in Gemini's format for the decision."""

import json
from typing import Any

import pytest

from backends.formats.json_splice import NotAnObject
from gateway.errors import InvalidRequest
from gateway.request.content_view import limited_to
from gateway.request.hosted_tools import ASSUMED_CALLS, NO_TOOLS, HostedTools, limit_calls
from gateway.request.run import Incoming
from gateway.request.view import RequestView
from gateway.request.view_of import view_of

Json = dict[str, Any]
HI: list[Json] = [{"parts": [{"text": "hello there"}]}]


def view(is_stream: bool = False, counts: bool = False, **body: Any) -> RequestView:
    operation = "generate_content.count_tokens" if counts else "generate_content"
    sent = json.dumps({"contents": HI} | body).encode()
    return view_of(Incoming(operation, None, sent, model="auto", is_stream=is_stream))


def test_the_address_says_which_model_and_whether_it_streams() -> None:
    seen = view(is_stream=True)
    assert (seen.operation, seen.model, seen.is_stream, seen.needs) == (
        "generate_content",
        "auto",
        True,
        ("streaming",),
    )
    assert not view(is_stream=True, counts=True).is_stream


def test_a_conversation() -> None:
    call = {"functionCall": {"name": "f", "args": {"city": "Paris"}}}
    result = {"functionResponse": {"name": "f", "response": {"result": "sunny"}}}
    contents = [*HI, {"role": "model", "parts": [call]}, {"role": "user", "parts": [result, {"text": "and?"}]}]
    seen = view(
        contents=contents,
        systemInstruction={"parts": [{"text": "be brief"}]},
        tools=[{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}],
    )
    assert seen.conversation.system == "be brief"
    assert seen.conversation.last_user == "and?"
    assert seen.conversation.earlier == ["hello there", "", '{"result":"sunny"}']
    assert seen.conversation.tool_count == 2
    assert seen.needs == ("tools",)
    assert seen.hosted_tools == NO_TOOLS
    assert seen.input_tokens > view().input_tokens
    assert seen.reuse is not None


def test_media() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "A" * 400}}
    seen = view(contents=[{"parts": [image, {"text": "x"}]}])
    assert (seen.needs, seen.image_bytes, seen.is_open_ended, seen.may_have_media) == (("vision",), 400, False, True)
    assert seen.conversation.image_count == 1
    sound = view(contents=[{"parts": [{"inline_data": {"mime_type": "audio/wav", "data": "A"}}]}])
    assert (sound.needs, sound.is_open_ended) == (("audio",), True)
    film = view(contents=[{"parts": [{"fileData": {"fileUri": "https://x"}}]}])
    assert (film.needs, film.is_open_ended, film.may_have_media) == ((), True, True)
    given = {"functionResponse": {"name": "f", "response": {}, "parts": [image]}}
    assert view(contents=[{"parts": [given]}]).image_bytes == 400
    assert not view().may_have_media
    assert view(cachedContent="cachedContents/1").is_open_ended
    assert view(generationConfig={"responseModalities": ["TEXT", "IMAGE"]}).may_have_media


def test_how_an_answer_is_made() -> None:
    config = {"maxOutputTokens": "9", "candidateCount": 2, "response_mime_type": "application/json"}
    seen = view(generation_config=config | {"response_schema": {"type": "OBJECT"}}, serviceTier="FLEX")
    assert (seen.max_output_tokens, seen.choices, seen.needs) == (9, 2, ("json_schema",))
    assert (seen.conversation.wants_json, seen.service_tier) == (True, "flex")
    long = {"response_json_schema": {"description": "x" * 4000}}
    assert view(generation_config=long).input_tokens > view().input_tokens + 1000
    assert view(service_tier="SERVICE_TIER_PRIORITY").service_tier == "priority"
    assert view(serviceTier="STANDARD").service_tier is None
    assert view(generationConfig={"maxOutputTokens": 0}).max_output_tokens is None


@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        ({"googleSearch": {}}, {"web_search"}),
        ({"google_search_retrieval": {}}, {"web_search"}),
        ({"codeExecution": {}, "urlContext": {}}, {"free"}),
        ({"googleMaps": {}}, {"other"}),
        ({"a_tool_to_come": {}}, {"other"}),
        ({"computerUse": {}}, set[str]()),
    ],
)
def test_what_google_runs_is_held_for(tool: Json, kinds: set[str]) -> None:
    hosted = view(tools=[tool]).hosted_tools
    assert hosted.kinds == kinds
    assert hosted.calls == (ASSUMED_CALLS if kinds else 0)
    body = json.dumps({"contents": HI, "tools": [tool]}).encode()
    assert limit_calls(body, hosted) == body, "there is no word for it"


def test_a_model_that_the_configuration_names_is_another_one() -> None:
    named = {"manual_mode": {"model_name": "dear"}}
    assert view(generation_config={"routing_config": named}).hosted_tools.asks_other_models
    assert view(generationConfig={"routingConfig": named}).hosted_tools.asks_other_models


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "contents"),
        (b'{"contents":[1]}', "contents"),
        (b'{"contents":[{}],"generationConfig":1}', "generationConfig"),
        (b'{"contents":[{}],"generationConfig":{"maxOutputTokens":-1}}', "maxOutputTokens: must be from 1"),
        (b'{"contents":[{}],"generationConfig":{"candidateCount":"x"}}', "candidateCount: must be an integer"),
        (b'{"contents":[{}],"system_instruction":{},"systemInstruction":{}}', "two spellings"),
        (b'{"contents":[{}],"generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}}', "two spellings"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        view_of(Incoming("generate_content", None, body, model="auto"))


def test_a_count_may_hold_the_whole_request() -> None:
    inner = {"contents": HI, "systemInstruction": {"parts": [{"text": "be brief"}]}}
    assert view(counts=True, generateContentRequest=inner).conversation.system == "be brief"


@pytest.mark.parametrize(
    ("body", "limited"),
    [
        (b'{"contents":[] }', b'{"contents":[],"generationConfig":{"maxOutputTokens":5} }'),
        (b'{"generationConfig":{"topP":1.0},"x":1}', b'{"generationConfig":{"topP":1.0,"maxOutputTokens":5},"x":1}'),
        (b'{"generation_config":{"max_output_tokens":0}}', b'{"generation_config":{"max_output_tokens":5}}'),
        (b'{"generationConfig":null}', b'{"generationConfig":{"maxOutputTokens":5}}'),
    ],
)
def test_a_limit_is_written_where_the_caller_would(body: bytes, limited: bytes) -> None:
    assert limited_to(body, 5) == limited
    with pytest.raises(NotAnObject):
        limited_to(b'{"a":1,"a":2}', 5)


def test_one_alone_is_seen_as_in_a_list() -> None:
    """As in Google's own parser: a search that went unnoticed was billed without any bound."""
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    listed = view(
        contents=[{"parts": [image]}],
        systemInstruction={"parts": [{"text": "be brief"}]},
        tools=[{"googleSearch": {}, "functionDeclarations": [{"name": "f"}]}],
        generationConfig={"responseModalities": ["IMAGE"]},
    )
    alone = view(
        contents={"parts": image},
        systemInstruction={"parts": {"text": "be brief"}},
        tools={"googleSearch": {}, "functionDeclarations": {"name": "f"}},
        generationConfig={"responseModalities": "IMAGE"},
    )
    assert alone.hosted_tools == HostedTools(ASSUMED_CALLS, frozenset({"web_search"}), is_limited=False)
    assert (alone.conversation, alone.hosted_tools, alone.needs, alone.may_have_media, alone.image_bytes) == (
        listed.conversation,
        listed.hosted_tools,
        listed.needs,
        listed.may_have_media,
        listed.image_bytes,
    )
    drawn = [view(generationConfig={"responseModalities": wanted}) for wanted in ("IMAGE", "TEXT", None)]
    assert [one.may_have_media for one in drawn] == [True, False, False]
