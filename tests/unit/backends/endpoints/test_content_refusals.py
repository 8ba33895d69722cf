"""Gemini's requests that are refused, or that only Google can serve."""

import json

import pytest

from backends.errors import Untranslatable, UpstreamRejected
from backends.protocol import Call
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from tests.unit.backends.endpoints.content_bodies import HI, Json, translate

REFUSED: list[tuple[Json, str]] = [
    ({"contents": []}, "contents"),
    ({"contents": [{"parts": []}]}, "contents"),
    ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents[0].role"),
    ({"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}, "contents[0].functionResponse"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "text/plain", "data": "??"}}]}]}, "contents[0].inlineData"),
    ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
    ({"generationConfig": {"maxOutputTokens": "many"}}, "generationConfig.maxOutputTokens"),
    ({"tools": [{"functionDeclarations": [{}]}]}, "tools.functionDeclarations.name"),
    ({"generationConfig": {"topP": 1, "top_p": 0.1}}, "body"),
]
UNSAYABLE: list[tuple[Json, str]] = [
    ({"cachedContent": "cachedContents/1"}, "cachedContent"),
    ({"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, "generationConfig.responseModalities"),
    ({"generationConfig": {"speechConfig": {"x": 1}}}, "generationConfig.speechConfig"),
    ({"tools": [{"googleSearch": {}}]}, "tools[0].googleSearch"),
    ({"tools": [{"code_execution": {}}]}, "tools[0].codeExecution"),
    ({"contents": [{"parts": [{"inlineData": {"mimeType": "video/mp4", "data": ""}}]}]}, "contents[0].inlineData"),
    ({"contents": [{"parts": [{"fileData": {"fileUri": "https://x/y.pdf"}}]}]}, "contents[0].fileData"),
    ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://x/y.png"}}]}]}, "contents[0].fileData"),
    (
        {"contents": [{"parts": [{"fileData": {
            "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/1", "mimeType": "image/png"
        }}]}]},
        "contents[0].fileData",
    ),
    ({"contents": [{"role": "model", "parts": [{"executableCode": {}}]}]}, "contents[0].parts"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_is_wrong_in_any_format_is_refused_by_name(body: Json, param: str) -> None:
    with pytest.raises(UpstreamRejected) as refused:
        translate(body)
    assert not isinstance(refused.value, Untranslatable)
    assert json.loads(refused.value.body)["error"]["param"].startswith(param)


@pytest.mark.parametrize(("body", "param"), UNSAYABLE)
def test_what_only_google_can_do_is_left_to_another_model(body: Json, param: str) -> None:
    with pytest.raises(Untranslatable) as refused:
        translate(body)
    assert json.loads(refused.value.body)["error"]["param"] == param


@pytest.mark.parametrize("counts", [True, False])
async def test_who_cannot_be_asked_it_does_not_count_it(counts: bool) -> None:
    operation = "generate_content.count_tokens" if counts else "generate_content"
    cached: Json = {"contents": HI, "cachedContent": "cachedContents/1"}
    asked = json.dumps({"generateContentRequest": cached} if counts else cached).encode()
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    with pytest.raises(Untranslatable) as refused:
        await backend.open(Call(operation, "m", asked, False, "r"))
    assert json.loads(refused.value.body)["error"]["status"] == "INVALID_ARGUMENT"


async def test_an_estimate_is_told_in_geminis_words() -> None:
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    body = json.dumps({"generate_content_request": {"contents": HI}}).encode()
    call = Call("generate_content.count_tokens", "m", body, False, "r", input_tokens=7)
    [chunk] = [chunk async for chunk in await backend.open(call)]
    assert json.loads(chunk.payload) == {"totalTokens": 7}
