"""Between equal wire formats no byte changes: what a provider and its caller received is compared with what was sent,
through the official clients and with real sockets on both sides."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import msgspec
import pytest

from backends.anthropic import NATIVE_PATHS, AnthropicBackend
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.translating import TranslatingBackend
from backends.usage import Usage
from gateway.access.keys import KeyRecord
from gateway.ledger.entry import Entry, Status
from tests.builders import make_candidate, make_snapshot
from tests.integration.message_bytes import ANSWER, ASKED, RESPONDED, STREAM
from tests.integration.service import Passage, Service
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
COUNTED = Usage(
    input_tokens=357, cached_input_tokens=50, cache_write_5m_tokens=100, cache_write_1h_tokens=200, output_tokens=40
)


@dataclass(frozen=True, slots=True)
class Bytes(Passage):
    """A gateway in front of one provider: model `a` speaks Anthropic's format to it, `b` speaks OpenAI's."""

    async def post(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, headers=HEADERS | headers, timeout=120) as client:
            return await client.post(path, content=body)

    def sent_on(self) -> bytes:
        """The single request that the provider received."""
        [received] = self.provider.received
        return received.body


@pytest.fixture
async def passage() -> AsyncGenerator[Bytes]:
    service = Service(Rig())
    async with ScriptedProvider() as provider, serving(service.app) as url:
        spoken = AnthropicBackend("one", provider.base_url, "sk")
        other = OpenAICompatibleBackend("two", provider.base_url, "sk", paths=OPENAI_PATHS)
        service.rig.pipeline.backends = {
            "one": TranslatingBackend(spoken, native=NATIVE_PATHS),
            "two": TranslatingBackend(other, native=OPENAI_PATHS),
        }
        yield Bytes(service, provider, url)
        await spoken.aclose()
        await other.aclose()


def routed(body: bytes, name: bytes, upstream: bytes) -> bytes:
    """The body with the only permitted change: the model's name."""
    assert body.count(b'"' + name + b'"') == 1
    return body.replace(b'"' + name + b'"', b'"' + upstream + b'"')


def usage_of(entry: Entry) -> Usage:
    return Usage(
        input_tokens=entry.input_tokens,
        cached_input_tokens=entry.cached_input_tokens,
        cache_write_5m_tokens=entry.cache_write_5m_tokens,
        cache_write_1h_tokens=entry.cache_write_1h_tokens,
        output_tokens=entry.output_tokens,
    )


async def test_a_message_and_its_answer_are_untouched_but_for_the_name_of_the_model(passage: Bytes) -> None:
    passage.provider.plan([Raw((ANSWER,), headers=JSON)])
    answer = await passage.post("/v1/messages", ASKED)
    assert (answer.status_code, answer.content) == (200, ANSWER)
    assert passage.sent_on() == routed(ASKED, b"a", b"upstream-a")
    entry = await passage.entry()
    assert usage_of(entry) == COUNTED
    assert (entry.intent.operation, entry.is_usage_estimated, entry.finish_reason) == ("messages", False, "stop")


async def test_a_model_called_by_its_own_name_changes_nothing_at_all(passage: Bytes) -> None:
    named = make_candidate("claude-x", backend="one", upstream_model="claude-x")
    passage.service.rig.pipeline.snapshot = make_snapshot(candidates=[named])
    asked = routed(ASKED, b"a", b"claude-x")
    passage.provider.plan([Raw((ANSWER,), headers=JSON)])
    assert (await passage.post("/v1/messages", asked)).content == ANSWER
    assert passage.sent_on() == asked


async def test_a_stream_is_untouched(passage: Bytes) -> None:
    passage.provider.plan([Raw((STREAM[:100], STREAM[100:731], STREAM[731:]))])
    asked = ASKED.replace(b'"max_tokens"', b'"stream": true, "max_tokens"')
    answer = await passage.post("/v1/messages", asked)
    assert answer.content == STREAM
    assert passage.sent_on() == routed(asked, b"a", b"upstream-a")
    assert usage_of(await passage.entry()) == COUNTED


async def test_the_official_client_and_its_betas_reach_the_provider(passage: Bytes) -> None:
    passage.provider.plan([Raw((ANSWER,), headers=JSON), Raw((STREAM,))])
    asked: dict[str, Any] = {
        "model": "a",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "h\u00e9"}],
        "betas": ["one-2025-01-01", "two-2025-02-02"],
        "user_profile_id": "up_1",
        "extra_body": {"x": 1.5},
    }
    async with passage.anthropic() as client:
        raw = await client.beta.messages.with_raw_response.create(**asked)
        assert await raw.read() == ANSWER
        assert (await raw.parse()).content[0].type == "thinking"
        [received] = passage.provider.received
        assert received.body == routed(raw.http_request.content, b"a", b"upstream-a")
        version = raw.http_request.headers["anthropic-version"]
        async with client.beta.messages.stream(**asked) as stream:
            final = await stream.get_final_message()
    assert final.content[0].model_dump(include={"thinking", "signature"}) == {"thinking": "hm", "signature": "Eq=="}
    for received in passage.provider.received:
        headers = {name.lower(): value for name, value in received.headers.items()}
        assert headers["anthropic-beta"] == "one-2025-01-01,two-2025-02-02"
        assert headers["anthropic-user-profile-id"] == "up_1"
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk", version)
        assert "authorization" not in headers


async def test_a_prompt_cache_is_filled_at_anthropic_and_nowhere_else(passage: Bytes) -> None:
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 4000, "output_tokens": 0}
    message = {"type": "message", "role": "assistant", "content": [], "stop_reason": "max_tokens", "usage": usage}
    empty = json.dumps(message).encode()
    passage.provider.plan([Raw((empty,), headers=JSON)])
    asked = ASKED.replace(b'"max_tokens":2048', b'"max_tokens":0')
    answer = await passage.post("/v1/messages", asked)
    assert (answer.status_code, answer.content) == (200, empty)
    assert passage.sent_on() == routed(asked, b"a", b"upstream-a")
    entry = await passage.entry()
    assert usage_of(entry) == Usage(input_tokens=4003, cache_write_5m_tokens=4000)
    assert (entry.status, entry.finish_reason, entry.is_usage_estimated) == (Status.completed, "length", False)
    refused = await passage.post(
        "/v1/messages", b'{"model":"b","max_tokens":0,"messages":[{"role":"user","content":"hi"}]}'
    )
    assert refused.status_code == 400
    assert "needs one of Anthropic's models" in refused.json()["error"]["message"]
    assert len(passage.provider.received) == 1


async def test_auto_may_go_to_a_chat_model_without_anthropics_headers(passage: Bytes) -> None:
    asked = b'{"model":"b","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
    answer = await passage.post("/v1/messages", asked, **{"anthropic-beta": "x", "anthropic-version": "2023-01-01"})
    assert answer.json()["content"] == [{"type": "text", "text": "Hello, world."}]
    [received] = passage.provider.received
    assert received.path == "/v1/chat/completions"
    assert not [name for name in received.headers if name.lower().startswith("anthropic")]


async def test_the_provider_counts_tokens_where_it_can(passage: Bytes) -> None:
    counted, refused = b'{"input_tokens": 2095}', b'{"type":"error","error":{"type":"not_found_error","message":"no"}}'
    unable = Raw((refused,), status=404, headers=JSON)
    passage.provider.plan([Raw((counted,), headers=JSON), unable, Raw((), status=500, headers=JSON)])
    asked = ASKED.replace(b'"max_tokens":2048, ', b"")
    answer = await passage.post("/v1/messages/count_tokens", asked, **{"anthropic-beta": "b"})
    assert (answer.status_code, answer.content) == (200, counted)
    assert answer.headers["x-breakeven-count"] == "a"
    assert passage.sent_on() == routed(asked, b"a", b"upstream-a")
    assert passage.provider.received[0].path == "/v1/messages/count_tokens"
    for body in (asked, asked, routed(asked, b"a", b"b")):  # unknown endpoint; broken connection; a chat model
        estimated = await passage.post("/v1/messages/count_tokens", body)
        assert (estimated.status_code, estimated.headers["x-breakeven-count"]) == (200, "estimate")
        assert estimated.json()["input_tokens"] > 0
    assert not passage.service.rig.ledger.entries, "counting is free"


async def test_a_refusal_is_in_the_providers_words_and_a_failure_in_anthropics_shape(passage: Bytes) -> None:
    refusal = b'{"type":"error","error":{"type":"invalid_request_error","message":"too long"},"request_id":"req_1"}'
    passage.provider.plan([Raw((refusal,), status=400, headers=JSON), Raw((b"x",), status=529, headers=JSON)])
    answer = await passage.post("/v1/messages", ASKED)
    assert (answer.status_code, answer.content) == (400, refusal)
    async with passage.anthropic() as client:
        with pytest.raises(anthropic.APIStatusError) as failed:
            await client.messages.create(model="a", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert failed.value.status_code == 502
    assert json.loads(failed.value.response.content)["error"]["type"] == "api_error"


async def test_a_refusal_by_a_chat_model_takes_anthropics_shape(passage: Bytes) -> None:
    refusal = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'
    passage.provider.plan([Raw((refusal,), status=400, headers=JSON)])
    asked = b'{"model":"b","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
    answer = await passage.post("/v1/messages", asked)
    said = {"type": "invalid_request_error", "message": "prompt is too long: too long"}  # agents look for these words
    assert (answer.status_code, answer.json()) == (400, {"type": "error", "error": said})
    chat = await passage.post("/v1/chat/completions", b'{"model":"b","messages":[{"role":"user","content":"hi"}]}')
    assert (chat.status_code, chat.content) == (400, refusal)


async def test_a_refusal_that_quotes_our_key_is_not_shown(passage: Bytes) -> None:
    passage.provider.plan([Raw((b'{"error":{"message":"bad key sk"}}',), status=400, headers=JSON)])
    answer = await passage.post("/v1/messages", ASKED)
    assert answer.status_code == 400
    assert "bad key" not in answer.text


EMBEDDED = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[-2.50e-3]}],"model":"m","usage":{}}'
COMPLETED = b'{"id":"c", "object":"text_completion","choices":[{"index":0,"text":" x","finish_reason":"stop"}],"z":1.0}'


@pytest.mark.parametrize(
    ("path", "asked", "answered"),
    [
        ("/v1/embeddings", b'{"input":["h\\u00e9", "c"],"model":"b" ,"dimensions":3,"x":1.50}', EMBEDDED),
        ("/v1/completions", b'{ "model":"b","prompt":["x"],"suffix":"y","echo":true,"x":1e2 }', COMPLETED),
        (
            "/v1/responses",
            b'{"model":"b","input":[{"type":"item_reference","id":"msg_1"}],"previous_response_id":"resp_0","tools":'
            b'[{"type":"web_search"}], "include":["reasoning.encrypted_content"],"store":true,"x":1.50}',
            RESPONDED,
        ),
    ],
)
async def test_openais_other_endpoints_are_untouched(passage: Bytes, path: str, asked: bytes, answered: bytes) -> None:
    """For a key without a team: teams have their own ids for responses (test_stored_responses)."""
    passage.service.rig.add_key("bk-alone", KeyRecord("key-9", "alone", "app"))
    passage.provider.plan([Raw((answered,), headers=JSON)])
    answer = await passage.post(path, asked, authorization="Bearer bk-alone")
    assert (answer.status_code, answer.content) == (200, answered)
    assert passage.sent_on() == routed(asked, b"b", b"upstream-b")


@pytest.mark.parametrize(
    ("texts", "cut"), [(["x" * 800] * 1_000, b""), ("x" * 800_000, b',"truncate_prompt_tokens":-1')]
)
async def test_embeddings_are_asked_for_whatever_their_texts_add_up_to(
    passage: Bytes, texts: str | list[str], cut: bytes
) -> None:
    """LangChain sends 1,000 texts at a time, and vLLM cuts a long one: both were refused as too long."""
    asked = b'{"model":"b","input":%b%b}' % (msgspec.json.encode(texts), cut)
    passage.provider.plan([Raw((EMBEDDED,), headers=JSON)])
    answer = await passage.post("/v1/embeddings", asked)
    assert (answer.status_code, answer.content) == (200, EMBEDDED)
    assert passage.sent_on() == routed(asked, b"b", b"upstream-b")


async def test_prompts_that_fit_each_are_asked_for_together(passage: Bytes) -> None:
    """lm-eval sends batches of them; vLLM and OpenAI read each by itself."""
    passage.provider.plan([Raw((COMPLETED,), headers=JSON)])
    together = b'{"model":"b","prompt":%b,"max_tokens":9}' % msgspec.json.encode(["x" * 300_000] * 2)
    answer = await passage.post("/v1/completions", together)
    assert (answer.status_code, passage.sent_on()) == (200, routed(together, b"b", b"upstream-b"))
    answer = await passage.post("/v1/completions", b'{"model":"b","prompt":["%b","y"]}' % (b"x" * 500_000))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "about 125,001 tokens" in answer.text


async def test_a_streamed_response_is_untouched(passage: Bytes) -> None:
    kinds = ["response.created", "response.output_text.delta", "response.mcp_call.in_progress", "response.completed"]
    datas = [b'{"type":"%b", "sequence_number":%d,"x":1.50}' % (kind.encode(), at) for at, kind in enumerate(kinds)]
    stream = b"".join(
        b"event: %b\ndata: %b\n\n" % (kind.encode(), data) for kind, data in zip(kinds, datas, strict=True)
    )
    passage.provider.plan([Raw((stream,))])
    asked = b'{"model":"b","input":"hi","stream":true,"store":false}'
    assert (await passage.post("/v1/responses", asked)).content == stream
    assert passage.sent_on() == routed(asked, b"b", b"upstream-b")


async def test_a_streamed_chat_shows_what_would_have_come_without_us(passage: Bytes) -> None:
    """We request usage for the books: callers who did not request it see neither usage nor its `null`s."""
    said = b'{"id":"x","choices":[{"index":0,"delta":{"content":"h\\u00e9"}%b}],"z":1.50%b}'
    last = b'{"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
    events = [said % (b"", b',"usage":null'), said % (b',"finish_reason":"stop"', b',"usage":null'), last, b"[DONE]"]
    passage.provider.plan([Raw((b"".join(b"data: %b\n\n" % event for event in events),))])
    asked = b'{"model":"b","messages":[{"role":"user","content":"hi"}],"stream":true,"logit_bias":{"5":1.0}}'
    shown = b"".join(b"data: %b\n\n" % event for event in (said % (b"", b""), said % (b',"finish_reason":"stop"', b"")))
    assert (await passage.post("/v1/chat/completions", asked)).content == shown + b"data: [DONE]\n\n"
    assert passage.sent_on() == routed(asked, b"b", b"upstream-b")[:-1] + b',"stream_options":{"include_usage":true}}'


async def test_what_the_engine_tells_the_gateway_stays_out_of_anthropics_format(passage: Bytes) -> None:
    answer = (
        b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2},"x_breakeven":{"queue_seconds":0.5}}'
    )
    passage.provider.plan([Raw((answer,), headers=JSON)])
    asked = b'{"model":"b","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
    shown = await passage.post("/v1/messages", asked)
    assert b"x_breakeven" not in shown.content
    assert shown.json()["usage"]["output_tokens"] == 2


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("model", ["a", "b"])
async def test_a_trace_goes_on_upstream(passage: Bytes, model: str) -> None:
    asked = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    await passage.post("/v1/chat/completions", asked, traceparent=TRACE, tracestate="a=1,b=2")
    [received] = passage.provider.received
    headers = {name.lower(): value for name, value in received.headers.items()}
    assert (headers["traceparent"], headers["tracestate"]) == (TRACE, "a=1,b=2")


async def test_a_broken_trace_is_dropped(passage: Bytes) -> None:
    asked = b'{"model":"b","messages":[{"role":"user","content":"hi"}]}'
    await passage.post("/v1/chat/completions", asked, traceparent="00-" + "0" * 32 + TRACE[35:], tracestate="a=1")
    [received] = passage.provider.received
    assert not {name.lower() for name in received.headers} & {"traceparent", "tracestate"}
