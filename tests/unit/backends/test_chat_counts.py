"""Counting a chat's tokens at `/tokenize`: which backends do, what is sent, and how every answer is treated."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from backends.chat_counts import CountsChats
from backends.errors import Untranslatable, UpstreamAuth, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from backends.http.client import HttpResponse
from backends.key_pool import KeyLimits, KeyPool, PooledKey
from backends.openai_compatible import HealthSource, OpenAICompatibleBackend
from backends.protocol import Backend, Call, Operation, Timeouts
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from tests.scripted_provider import Raw, ScriptedProvider

JSON = {"content-type": "application/json"}
COUNTED = b'{"count": 37, "max_model_len": 128, "tokens": [1, 2], "token_strs": null}'
TOOLS = [{"type": "function", "function": {"name": "weather"}}]
PICTURE = [{"type": "image_url", "image_url": {"url": "data:,"}}]
REFUSED = b'{"error":{"message":"The prompt is empty.","type":"invalid_request_error","param":"messages","code":null}}'
ESTIMATE = 7


def said(body: bytes, status: int = 200) -> Raw:
    return Raw((body,), status=status, headers=JSON)


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **changes}


def make_call(operation: Operation, body: dict[str, Any]) -> Call:
    return Call(operation, "m", json.dumps(body).encode(), False, "r-1", input_tokens=ESTIMATE)


def make_backend(provider: ScriptedProvider, source: HealthSource = "engine") -> OpenAICompatibleBackend:
    return OpenAICompatibleBackend("one", provider.base_url, "sk-1", health_from=source)


async def count(backend: OpenAICompatibleBackend, **changes: Any) -> int | None:
    return await backend.count_chat(make_call("chat.completions", chat(**changes)))


async def opened(backend: Backend, operation: Operation, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """(the answer, whether it is an estimate)."""
    reply = await backend.open(make_call(operation, body))
    [chunk] = [chunk async for chunk in reply]
    assert chunk.usage is not None
    return json.loads(chunk.payload), chunk.usage.is_estimated


async def test_what_makes_the_prompt_is_sent_to_the_servers_root() -> None:
    made: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": "none",
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": False,
        "continue_final_message": True,
        "documents": [{"text": "d"}],
        "reasoning_effort": "none",
    }
    async with ScriptedProvider(said(COUNTED)) as provider, aclosing(make_backend(provider)) as backend:
        assert await count(backend, **made, max_tokens=4, temperature=2, stream=True, response_format={}) == 37
        [received] = provider.received
        assert (received.method, received.path) == ("POST", "/tokenize")
        assert received.json == chat(**made) | {"model": "m"}
        assert {name.lower(): value for name, value in received.headers.items()}["authorization"] == "Bearer sk-1"


async def test_llama_cpp_is_asked_beside_its_chats() -> None:
    answer = said(b'{"input_tokens":31,"object":"response.input_tokens"}')
    async with ScriptedProvider(answer) as provider, aclosing(make_backend(provider, "llamacpp")) as backend:
        assert await count(backend, max_tokens=4) == 31
        [received] = provider.received
        assert (received.path, received.json) == ("/v1/chat/completions/input_tokens", chat() | {"model": "m"})


async def test_only_who_is_known_to_count_is_asked() -> None:
    sources: tuple[HealthSource, ...] = ("models", "engine", "vllm", "sglang")
    async with ScriptedProvider(said(COUNTED)) as provider:
        for source in sources:
            async with aclosing(make_backend(provider, source)) as backend:
                assert backend.counts_chats == (source in ("engine", "vllm"))
                assert await count(backend) == (37 if backend.counts_chats else None)
        assert len(provider.received) == 2


async def test_vllm_sees_no_more_of_a_picture_than_its_mark_and_our_engine_refuses_it() -> None:
    pictured = [{"role": "user", "content": PICTURE}]
    async with ScriptedProvider(said(COUNTED), said(REFUSED, 400)) as provider:
        async with aclosing(make_backend(provider, "vllm")) as backend:
            assert await count(backend, messages=pictured) is None
            assert not provider.received
            assert await count(backend, messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}]) == 37
        async with aclosing(make_backend(provider)) as backend:
            with pytest.raises(UpstreamRejected, match="400"):
                await count(backend, messages=pictured)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (said(b"{}"), UpstreamUnavailable),
        (said(b'{"count": -1}'), UpstreamUnavailable),
        (said(b'{"count": "37"}'), UpstreamUnavailable),
        (said(b"<html>"), UpstreamUnavailable),
        (said(b"", 503), UpstreamUnavailable),
        (said(b"", 401), UpstreamAuth),
    ],
)
async def test_what_fails_is_told_as_of_any_call(answer: Raw, kind: type[Exception]) -> None:
    async with ScriptedProvider(answer) as provider, aclosing(make_backend(provider)) as backend:
        with pytest.raises(kind):
            await count(backend)


class Hung:
    """An HTTP client of a server that never answers: it reports the timeout at once instead of waiting."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> HttpResponse:
        raise UpstreamTimeout(f"{timeouts.first_byte_seconds:.0f} s")

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(("allowed", "waited"), [(600.0, "30 s"), (5.0, "5 s")])
async def test_a_count_is_not_waited_for_as_an_answer_is(allowed: float, waited: str) -> None:
    backend = OpenAICompatibleBackend("one", "http://127.0.0.1:1/v1", None, health_from="vllm", client=Hung())
    call = msgspec.structs.replace(make_call("chat.completions", chat()), timeouts=Timeouts(first_byte_seconds=allowed))
    with pytest.raises(UpstreamTimeout, match=waited):
        await backend.count_chat(call)


@pytest.mark.parametrize("status", [404, 405])
async def test_where_only_v1_is_let_through_nobody_counts(status: int) -> None:
    answer = said(b"<html>nothing here</html>", status)
    async with ScriptedProvider(answer) as provider, aclosing(make_backend(provider)) as backend:
        assert await count(backend) is None


async def test_vllms_refusal_to_count_is_none_to_answer() -> None:
    async with ScriptedProvider(said(REFUSED, 400)) as provider, aclosing(make_backend(provider, "vllm")) as backend:
        assert await count(backend) is None


async def test_a_pool_counts_by_one_of_its_keys_and_takes_none_of_its_room() -> None:
    async with ScriptedProvider(said(COUNTED)) as provider, aclosing(make_backend(provider, "vllm")) as backend:
        pool = KeyPool("pool", [PooledKey("k", backend, KeyLimits(requests_per_minute=1))])
        for _ in range(2):
            assert (pool.counts_chats, await pool.count_chat(make_call("chat.completions", chat()))) == (True, 37)
    silent = KeyPool("pool", [PooledKey("k", ScriptedBackend("k", follow([Outcome()])))])
    assert isinstance(silent, CountsChats)
    assert not silent.counts_chats
    assert await silent.count_chat(make_call("chat.completions", chat())) is None


MESSAGE = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
RESPONSE = {"model": "auto", "input": "hi"}
CONTENT = {"contents": [{"parts": [{"text": "hi"}]}]}
ASKED: list[tuple[Operation, dict[str, Any], dict[str, Any]]] = [
    ("messages.count_tokens", MESSAGE, {"input_tokens": 37}),
    ("responses.input_tokens", RESPONSE, {"object": "response.input_tokens", "input_tokens": 37}),
    ("generate_content.count_tokens", CONTENT, {"totalTokens": 37}),
    ("generate_content.count_tokens", {"generateContentRequest": CONTENT}, {"totalTokens": 37}),
]


@pytest.mark.parametrize(("operation", "body", "answer"), ASKED)
async def test_each_format_is_counted_as_the_chat_that_would_be_asked(
    operation: Operation, body: dict[str, Any], answer: dict[str, Any]
) -> None:
    async with ScriptedProvider(said(COUNTED)) as provider, aclosing(make_backend(provider)) as backend:
        assert await opened(TranslatingBackend(backend), operation, body) == (answer, False)
        [received] = provider.received
        assert received.json == chat(model="m")


@pytest.mark.parametrize(("operation", "body", "answer"), ASKED)
async def test_elsewhere_it_is_estimated(operation: Operation, body: dict[str, Any], answer: dict[str, Any]) -> None:
    estimated = {name: ESTIMATE if count == 37 else count for name, count in answer.items()}
    scripted = ScriptedBackend("s", follow([Outcome()]))
    assert await opened(TranslatingBackend(scripted), operation, body) == (estimated, True)
    async with ScriptedProvider(said(b"", 404)) as provider, aclosing(make_backend(provider)) as backend:
        assert await opened(TranslatingBackend(backend), operation, body) == (estimated, True)


async def test_a_message_that_is_no_chat_is_estimated() -> None:
    kept = {**MESSAGE, "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file"}}]}]}
    async with ScriptedProvider(said(COUNTED)) as provider, aclosing(make_backend(provider)) as backend:
        assert await opened(TranslatingBackend(backend), "messages.count_tokens", kept) == (
            {"input_tokens": ESTIMATE},
            True,
        )
        assert not provider.received


@pytest.mark.parametrize(("operation", "body", "answer"), ASKED)
async def test_a_refusal_is_told_in_the_callers_format(
    operation: Operation, body: dict[str, Any], answer: dict[str, Any]
) -> None:
    async with ScriptedProvider(said(REFUSED, 400)) as provider, aclosing(make_backend(provider)) as backend:
        with pytest.raises(UpstreamRejected) as caught:
            await opened(TranslatingBackend(backend), operation, body)
    told = json.loads(caught.value.body)
    assert not isinstance(caught.value, Untranslatable)
    assert "The prompt is empty." in told["error"]["message"]
    assert ("type" in told) == (operation == "messages.count_tokens")
    assert ("status" in told["error"]) == ("totalTokens" in answer)
