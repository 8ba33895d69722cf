"""Gemini's endpoints over a real socket: with a model in OpenAI's format, and one in Gemini's own, where not a byte is
changed."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from backends.gemini import GeminiBackend
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import CONTENT
from backends.scripted import Outcome
from backends.translating import TranslatingBackend
from backends.usage import Usage
from gateway.api.other_addresses import OtherAddresses
from gateway.ledger.entry import Entry, Status
from tests.integration.service import Passage, Service
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
Json = dict[str, Any]
JSON = {"content-type": "application/json"}
HEADERS = {"x-goog-api-key": KEY, **JSON}
HI: Json = {"contents": [{"parts": [{"text": "hi"}]}]}
ASKED = b"""{ "contents" : [{"role":"user","parts":[{"text":"h\\u00e9"},{"fileData":{"fileUri":"https://x/files/1"}}]},
   {"role":"model","parts":[{"thought":true,"text":"hm"},{"functionCall":{"name":"f","args":{}},"thoughtSignature":"Eq=="}]},
   {"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":1.50}}}]}],
  "generation_config":{"temperature":1.0,"x":1e3}, "safetySettings":[{"category":"C","threshold":"BLOCK_NONE"}],
  "cachedContent":"cachedContents/1", "x-unknown":{"y":1.50} }"""
METADATA = (
    b'{"promptTokenCount":357,"cachedContentTokenCount":50,"candidatesTokenCount":30,"thoughtsTokenCount":10,'
    b'"totalTokenCount":397,"serviceTier":"priority"}'
)
ANSWER = (
    b'{"candidates":[ {"content":{"parts":[{"text":"h\\u00e9","thoughtSignature":"Eq=="}],"role":"model"},'
    b'"finishReason":"STOP","safetyRatings":[],"index":0}],"usageMetadata":'
    + METADATA
    + b',"responseId":"r","x":1.50}\n'
)
PIECES = (
    b'{"candidates":[{"content":{"parts":[{"text":"h\\u00e9"}],"role":"model"},"index":0}],"x":1.0}',
    b'{"candidates":[{"content":{"parts":[{"text":"!"}],"role":"model"},"finishReason":"STOP","index":0}],'
    b'"usageMetadata":' + METADATA + b"}",
)
STREAM = b"".join(b"data: %b\n\n" % piece for piece in PIECES)
COUNTED = Usage(
    input_tokens=357, cached_input_tokens=50, output_tokens=40, reasoning_tokens=10, service_tier="priority"
)


@dataclass(frozen=True, slots=True)
class Contents(Passage):
    """A gateway in front of one provider: model `a` speaks Gemini's format to it, `b` speaks OpenAI's."""

    async def post(self, path: str, body: bytes | Json, **headers: str) -> httpx.Response:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(base_url=self.url, headers=HEADERS | headers, timeout=120) as client:
            return await client.post(path, content=sent)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=120) as client:
            return await client.get(path)


@pytest.fixture
async def passage() -> AsyncGenerator[Contents]:
    service = Service(Rig())
    async with ScriptedProvider() as provider, serving(OtherAddresses(service.app)) as url:
        spoken = GeminiBackend("one", f"{provider.origin}/v1beta", "sk")
        other = OpenAICompatibleBackend("two", provider.base_url, "sk")
        service.rig.pipeline.backends = {
            "one": TranslatingBackend(spoken, native=CONTENT),
            "two": TranslatingBackend(other),
        }
        yield Contents(service, provider, url)
        await spoken.aclose()
        await other.aclose()


def usage_of(entry: Entry) -> Usage:
    return Usage(
        input_tokens=entry.input_tokens,
        cached_input_tokens=entry.cached_input_tokens,
        output_tokens=entry.output_tokens,
        reasoning_tokens=entry.reasoning_tokens,
        service_tier=entry.service_tier,
    )


@pytest.mark.parametrize("version", ["v1beta", "v1"])
async def test_a_call_and_its_answer_are_untouched_where_the_model_speaks_geminis_format(
    passage: Contents, version: str
) -> None:
    passage.provider.plan([Raw((ANSWER,), headers=JSON)])
    answer = await passage.post(f"/{version}/models/a:generateContent", ASKED)
    assert (answer.status_code, answer.content) == (200, ANSWER)
    [received] = passage.provider.received
    assert (received.path, received.body) == ("/v1beta/models/upstream-a:generateContent", ASKED)
    headers = {name.lower(): value for name, value in received.headers.items()}
    assert headers["x-goog-api-key"] == "sk"
    entry = await passage.entry()
    assert usage_of(entry) == COUNTED
    assert (entry.intent.operation, entry.intent.requested_model) == ("generate_content", "a")
    assert (entry.is_usage_estimated, entry.finish_reason) == (False, "stop")


async def test_a_stream_is_untouched(passage: Contents) -> None:
    passage.provider.plan([Raw((STREAM[:20], STREAM[20:130], STREAM[130:]))])
    answer = await passage.post("/v1beta/models/a:streamGenerateContent?alt=sse", ASKED)
    assert (answer.headers["content-type"], answer.content) == ("text/event-stream", STREAM)
    [received] = passage.provider.received
    assert received.body == ASKED
    entry = await passage.entry()
    assert usage_of(entry) == COUNTED
    assert (entry.intent.is_stream, entry.status, entry.finish_reason) == (True, Status.completed, "stop")


async def test_whoever_asks_for_no_events_gets_a_list(passage: Contents) -> None:
    passage.provider.plan([Raw((STREAM,)), Outcome()])
    answer = await passage.post("/v1beta/models/a:streamGenerateContent", ASKED)
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b"[" + b",\r\n".join(PIECES) + b"]"
    chat = await passage.post("/v1beta/models/b:streamGenerateContent", HI)
    said = [event["candidates"][0] for event in chat.json()]
    assert "".join(one["content"]["parts"][0]["text"] for one in said) == "Hello, world."
    assert [one.get("finishReason") for one in said][-1] == "STOP"


async def test_what_other_models_called_is_signed_for_gemini(passage: Contents) -> None:
    passage.provider.plan([Raw((ANSWER,), headers=JSON)])
    call = {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}
    result = {"functionResponse": {"id": "c1", "name": "f", "response": {"result": 1}}}
    turns = [{"role": "model", "parts": [call, call]}, {"role": "user", "parts": [result, result]}]
    await passage.post("/v1beta/models/a:generateContent", {"model": "models/x", "contents": [*HI["contents"], *turns]})
    [received] = passage.provider.received
    sent = json.loads(received.body)
    assert sent.keys() == {"contents"}
    assert sent["contents"][1]["parts"] == [
        call | {"thoughtSignature": "skip_thought_signature_validator"},
        call,
    ]


async def test_a_chat_model_answers_in_geminis_words(passage: Contents) -> None:
    passage.provider.plan([Outcome(usage=Usage(12, 5, output_tokens=9, reasoning_tokens=5))])
    answer = await passage.post("/v1beta/models/b:generateContent", HI)
    request_id = answer.headers["x-request-id"]
    assert answer.json() == {
        "candidates": [
            {"content": {"parts": [{"text": "Hello, world."}], "role": "model"}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": 12,
            "cachedContentTokenCount": 5,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 21,
        },
        "modelVersion": "upstream-b",
        "responseId": request_id,
    }
    [received] = passage.provider.received
    assert json.loads(received.body) == {"model": "upstream-b", "messages": [{"role": "user", "content": "hi"}]}
    entry = await passage.entry()
    assert (entry.intent.operation, entry.intent.request_id) == ("generate_content", request_id)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd > 0


async def test_a_chat_models_stream_ends_with_its_reason_and_its_usage(passage: Contents) -> None:
    answer = await passage.post("/v1beta/models/auto:streamGenerateContent?alt=sse", HI, **{"x-breakeven-tags": "t"})
    events = [json.loads(event.removeprefix(b"data: ")) for event in answer.content.split(b"\n\n") if event]
    assert "".join(event["candidates"][0]["content"]["parts"][0]["text"] for event in events) == "Hello, world."
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"
    assert events[-1]["usageMetadata"]["totalTokenCount"] == 16
    assert not any("finishReason" in event["candidates"][0] for event in events[:-1])
    assert (await passage.entry()).intent.tags == ("base", "t")


ERRORS: list[tuple[str, str, bytes | Json, str, int, str]] = [
    ("bk-wrong", "a", HI, "not known here", 401, "UNAUTHENTICATED"),
    ("bk-viewer", "a", HI, "may read but not call", 403, "PERMISSION_DENIED"),
    (KEY, "none", HI, '"auto" or one of', 404, "NOT_FOUND"),
    (KEY, "a", b"{", "not valid JSON", 400, "INVALID_ARGUMENT"),
    (KEY, "a", {}, "contents", 400, "INVALID_ARGUMENT"),
    (KEY, "b", HI | {"cachedContent": "cachedContents/1"}, "stored at Google", 400, "INVALID_ARGUMENT"),
    (KEY, "a", HI | {"generationConfig": {}, "generation_config": {}}, "two spellings", 400, "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
@pytest.mark.parametrize(("key", "model", "body", "says", "status", "word"), ERRORS)
async def test_a_refusal_has_googles_shape(
    passage: Contents, key: str, model: str, body: bytes | Json, says: str, status: int, word: str, method: str
) -> None:
    answer = await passage.post(f"/v1beta/models/{model}:{method}", body, **{"x-goog-api-key": key})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (status, status, word)
    assert says in error["message"]
    named = [one["requestId"] for one in error["details"] if one["@type"].endswith("RequestInfo")]
    assert named == ([] if model == "b" else [answer.headers["x-request-id"]])


async def test_a_provider_that_is_full_says_when_to_come_back(passage: Contents) -> None:
    passage.provider.plan([Raw((b"{}",), status=429, headers=JSON | {"retry-after": "7"})] * 9)
    answer = await passage.post("/v1beta/models/b:generateContent", HI)
    error = answer.json()["error"]
    assert (answer.status_code, error["status"]) == (429, "RESOURCE_EXHAUSTED")
    [retry] = [one for one in error["details"] if one["@type"].endswith("RetryInfo")]
    assert (answer.headers["retry-after"], retry["retryDelay"]) == ("7", "7s")


async def test_a_provider_refuses_in_its_own_words_or_in_googles_shape(passage: Contents) -> None:
    own = b'{"error":{"code":400,"message":"too long","status":"INVALID_ARGUMENT","details":[{"x":1}]}}'
    other = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'
    passage.provider.plan([Raw((own,), status=400, headers=JSON), Raw((other,), status=400, headers=JSON)])
    native = await passage.post("/v1beta/models/a:generateContent", HI)
    assert (native.status_code, native.content) == (400, own)
    chat = (await passage.post("/v1beta/models/b:generateContent", HI)).json()["error"]
    said = (
        "The input token count exceeds the maximum number of tokens allowed: too long"  # clients look for these words
    )
    assert (chat["message"], chat["status"]) == (said, "INVALID_ARGUMENT")
    assert chat["details"][0]["reason"] == "CONTEXT_LENGTH_EXCEEDED"


@pytest.mark.parametrize("model", ["a", "b"])
async def test_a_stream_that_breaks_ends_with_an_error_and_is_booked_as_partial(passage: Contents, model: str) -> None:
    passage.provider.plan([Outcome(fault="reset", fault_after_pieces=2)])
    answer = await passage.post(f"/v1beta/models/{model}:streamGenerateContent?alt=sse", HI)
    last = json.loads(answer.content.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: "))
    assert (last["error"]["code"], last["error"]["status"]) == (502, "UNAVAILABLE")
    assert "broke off" in last["error"]["message"]
    assert (await passage.entry()).status is Status.partial


async def test_tokens_are_counted_by_whoever_can(passage: Contents) -> None:
    passage.provider.plan([Raw((b'{"totalTokens": 2095}',), headers=JSON)])
    asked = b'{"generateContentRequest":{"model":"models/a","contents":[{"parts":[{"text":"hi"}]}]}}'
    counted = await passage.post("/v1beta/models/a:countTokens", asked)
    assert (counted.content, counted.headers["x-breakeven-count"]) == (b'{"totalTokens": 2095}', "a")
    [received] = passage.provider.received
    assert received.path == "/v1beta/models/upstream-a:countTokens"
    assert received.body == asked.replace(b"models/a", b"models/upstream-a")
    estimated = await passage.post("/v1beta/models/b:countTokens", HI)
    assert estimated.headers["x-breakeven-count"] == "estimate"
    assert estimated.json()["totalTokens"] > 0
    assert not passage.service.rig.ledger.entries, "counting is free"


async def test_a_key_may_stand_in_the_query(passage: Contents) -> None:
    without = {name: value for name, value in HEADERS.items() if name != "x-goog-api-key"}
    async with httpx.AsyncClient(base_url=passage.url, headers=without, timeout=120) as client:
        answer = await client.post(f"/v1beta/models/b:generateContent?key={KEY}", json=HI)
        assert answer.status_code == 200
        wrong = await client.post("/v1beta/models/b:generateContent?key=bk-wrong", json=HI)
        assert wrong.status_code == 401
        assert "bk-wrong" not in wrong.text
        listed = await client.get(f"/v1/models?key={KEY}")
        assert listed.json()["models"][0]["name"] == "models/auto"


async def test_models_are_listed_as_googles_clients_read_them(passage: Contents) -> None:
    for place in ("/v1beta/models", "/v1/models"):
        page = (await passage.get(f"{place}?pageSize=2", **{"x-goog-api-key": KEY})).json()
        assert [model["name"] for model in page["models"]] == ["models/auto", "models/a"]
        rest = (await passage.get(f"{place}?pageToken={page['nextPageToken']}", **{"x-goog-api-key": KEY})).json()
        assert [model["name"] for model in rest["models"]] == ["models/b"]
        assert "nextPageToken" not in rest
    one = (await passage.get("/v1beta/models/a", authorization=f"Bearer {KEY}")).json()
    assert one["supportedGenerationMethods"] == ["generateContent", "streamGenerateContent", "countTokens"]
    unknown = (await passage.get("/v1beta/models/zzz", **{"x-goog-api-key": KEY})).json()["error"]
    assert (unknown["code"], unknown["status"]) == (404, "NOT_FOUND")
    openai = (await passage.get("/v1/models", authorization=f"Bearer {KEY}")).json()
    assert openai["object"] == "list"


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1beta/models/a:generateContent", 405, "Send a POST"),
        ("POST", "/v1beta/cachedContents", 404, "stored at Google"),
        ("POST", "/upload/v1beta/files", 404, "stored at Google"),
        ("POST", "/v1beta/models/a:predict", 404, "stored at Google"),
        ("POST", "/v1/models/a:predict", 404, "stored at Google"),
        ("POST", "/v1/interactions", 404, "stored at Google"),
    ],
)
async def test_what_is_not_there_says_so_in_googles_shape(
    passage: Contents, method: str, path: str, status: int, says: str
) -> None:
    async with httpx.AsyncClient(base_url=passage.url, headers=HEADERS, timeout=120) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)
    assert says in answer.json()["error"]["message"]


async def test_openais_clients_may_keep_googles_address(passage: Contents) -> None:
    chat = {"model": "b", "messages": [{"role": "user", "content": "hi"}]}
    answer = await passage.post("/v1beta/openai/chat/completions", chat, authorization=f"Bearer {KEY}")
    assert answer.json()["choices"][0]["message"]["content"] == "Hello, world."


async def test_an_idempotency_key_holds_for_the_model_and_for_the_form(passage: Contents) -> None:
    once = {"idempotency-key": "k"}
    first = await passage.post("/v1beta/models/b:generateContent", HI, **once)
    again = await passage.post("/v1beta/models/b:generateContent", HI, **once)
    assert again.content == first.content
    assert len(passage.provider.received) == 1
    other = await passage.post("/v1beta/models/a:generateContent", HI, **once)
    assert (other.status_code, other.json()["error"]["status"]) == (422, "INVALID_ARGUMENT")


async def test_the_response_cache_tells_models_and_forms_apart(passage: Contents) -> None:
    kept = {"x-breakeven-cache": "on"}
    asked = [("b", "generateContent"), ("a", "generateContent"), ("b", "streamGenerateContent?alt=sse")]
    for found in ("miss", "hit"):
        answers = [await passage.post(f"/v1beta/models/{model}:{method}", HI, **kept) for model, method in asked]
        assert [answer.headers["x-breakeven-cache"] for answer in answers] == [found] * 3
    listed = await passage.post("/v1beta/models/b:streamGenerateContent", HI, **kept)
    assert listed.headers["x-breakeven-cache"] == "hit"
    assert listed.json()[-1]["candidates"][0]["finishReason"] == "STOP"
    assert len(passage.provider.received) == 3
