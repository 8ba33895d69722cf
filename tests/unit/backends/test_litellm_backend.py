"""The litellm adapter: what it is sent, what it answers, and one real call in a child process."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    StreamStalled,
    UnreadableAnswer,
    Untranslatable,
    UpstreamRejected,
    UpstreamTimeout,
)
from backends.formats.past_thinking import carry, detail_of
from backends.litellm_backend import LitellmBackend
from backends.protocol import Call, Chunk, Timeouts
from backends.scripted import Outcome
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.fake_litellm import BODY, HELLO, PLAIN, FakeLitellm, Json, Piece, error_named, make_call


async def test_reasoning_that_a_caller_keeps_for_another_model_stays_with_us() -> None:
    fake = FakeLitellm(PLAIN)
    said = {"role": "assistant", "content": "x"}
    theirs = said | {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA"}]}
    for answer, told in ((said | {"reasoning_details": [detail_of(carry("x", "openai"), 0)]}, said), (theirs, theirs)):
        messages = [*HELLO, answer]
        await read_stream.collect(LitellmBackend("b", complete=fake), make_call(BODY | {"messages": messages}))
        assert fake.arguments["messages"] == [*HELLO, told]


async def test_only_chat_fields_reach_litellm_so_no_caller_can_set_an_address_or_a_key() -> None:
    fake = FakeLitellm(PLAIN)
    backend = LitellmBackend("b", settings={"api_key": "ours", "api_base": "https://ours"}, complete=fake)
    hostile = {
        "api_base": "https://evil",
        "base_url": "https://evil",
        "api_key": "theirs",
        "extra_headers": {"x": "y"},
        "model_list": [{}],
        "custom_llm_provider": "openai",
        "mock_response": "free",
        "metadata": {},
        "fallbacks": ["gpt"],
    }
    reply = await backend.open(make_call(BODY | hostile))
    [chunk] = [chunk async for chunk in reply]
    await reply.aclose()
    assert json.loads(chunk.payload)["choices"][0]["message"]["content"] == "hello"
    assert fake.arguments == {
        "messages": BODY["messages"],
        "temperature": 0.5,
        "model": "azure/x",
        "api_key": "ours",
        "api_base": "https://ours",
        "timeout": 600.0,
        "drop_params": True,
        "max_retries": 0,
        "num_retries": 0,
        "_skip_mcp_handler": True,
    }


COUNTED = {"prompt_tokens": 2190, "completion_tokens": 7, "total_tokens": 2197}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_litellm_counts_itself_is_no_usage(*, is_stream: bool) -> None:
    said = {"content": "hello"}
    choice = {"index": 0, "message": said, "delta": said, "finish_reason": "stop"}
    answer = Piece({"choices": [choice], "usage": COUNTED})

    async def pieces() -> AsyncIterator[Piece]:
        yield answer

    for model, is_counted in (("azure/x", True), ("cohere/command-a", False), ("replicate/meta/llama", False)):
        backend = LitellmBackend("b", complete=FakeLitellm(pieces() if is_stream else answer))
        chunks = await read_stream.collect(backend, make_call(model=model, stream=is_stream))
        assert any(chunk.usage for chunk in chunks) is is_counted


class Wrapper:
    """As litellm's, which keeps the provider's pieces, and sends a usage of its own at the end."""

    def __init__(self, *reported: Json) -> None:
        self.chunks = [SimpleNamespace(), *(SimpleNamespace(usage=Piece(usage)) for usage in reported)]
        said = {"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}
        self.pieces = [Piece({"choices": [said]}), Piece({"choices": [{"index": 0, "delta": {}}], "usage": COUNTED})]

    def __aiter__(self) -> "Wrapper":
        return self

    async def __anext__(self) -> Piece:
        if not self.pieces:
            raise StopAsyncIteration
        return self.pieces.pop(0)


OF_XAI: Json = {
    "prompt_tokens": 32,
    "completion_tokens": 9,
    "total_tokens": 135,
    "completion_tokens_details": {"reasoning_tokens": 94},
    "cost_in_usd_ticks": 15000000,
}


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ([], None),
        ([OF_XAI], Usage(32, output_tokens=103, reasoning_tokens=94, charged_pico_usd=1_500_000_000)),
        ([{"prompt_tokens": 2190}, {"completion_tokens": 7}], Usage(2190, output_tokens=7)),
    ],
)
async def test_a_stream_is_booked_as_its_provider_reports_it(reported: list[Json], usage: Usage | None) -> None:
    backend = LitellmBackend("b", complete=FakeLitellm(Wrapper(*reported)))
    chunks = await read_stream.collect(backend, make_call(stream=True))
    assert [chunk.usage for chunk in chunks if chunk.usage] == ([usage] if usage else [])


@pytest.mark.parametrize(
    ("traffic", "named", "tier"),
    [
        ("ON_DEMAND_PRIORITY", {}, "priority"),
        ("ON_DEMAND_FLEX", {}, "flex"),
        ("ON_DEMAND", {}, None),
        ("ON_DEMAND_PRIORITY", {"service_tier": "default"}, "default"),  # Gemini's, by a header
    ],
)
async def test_the_tier_that_answered_at_vertex_is_booked(traffic: str, named: Json, tier: str | None) -> None:
    """As litellm 1.106.2 has it: in no piece's JSON, and not even beside the one with the usage."""
    said: Json = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]}
    counted: Json = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}} | named
    beside = {"provider_specific_fields": {"traffic_type": traffic}}
    whole = Piece(counted | {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}, beside)
    first = Piece(said, beside)
    stream = Wrapper()
    stream.chunks, stream.pieces = [SimpleNamespace(usage=Piece(counted["usage"]))], [first, Piece(counted)]
    for answer in (whole, stream):
        call = make_call(model="vertex_ai/gemini-3.6-flash", stream=answer is stream)
        chunks = await read_stream.collect(LitellmBackend("b", complete=FakeLitellm(answer)), call)
        assert [chunk.usage for chunk in chunks if chunk.usage] == [Usage(10, output_tokens=2, service_tier=tier)]


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("gemini/gemini-3.6-flash", "auto", None),
        ("gemini/gemini-3.6-flash", "flex", "flex"),
        ("vertex_ai/gemini-3.6-flash", "priority", None),
        ("azure/x", "auto", "auto"),
    ],
)
async def test_auto_buys_no_priority_and_vertex_gets_no_tier_that_it_refuses(
    model: str, asked: str, sent: str | None
) -> None:
    """litellm 1.106.2 makes `auto` Gemini's priority; Vertex answers 400 to `flex` (googleapis/python-genai#2847)."""
    fake = FakeLitellm(PLAIN)
    await LitellmBackend("b", complete=fake).open(make_call(BODY | {"service_tier": asked}, model=model))
    assert fake.arguments.get("service_tier") == sent


DECLINED: Json = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "no"}}


FEW: Json = {"prompt_tokens": 106, "completion_tokens": 1, "total_tokens": 107}


@pytest.mark.parametrize(
    ("message", "usage"),
    [
        ({"refusal": "no", "provider_specific_fields": DECLINED}, Usage()),
        ({"content": "as I", "refusal": "no", "provider_specific_fields": DECLINED}, Usage(106, output_tokens=1)),
        ({"content": '{"stop_reason": "refusal"}'}, Usage(106, output_tokens=1)),
        ({"provider_specific_fields": {"citations": None}}, Usage(106, output_tokens=1)),  # litellm 1.106.2
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_claude_refuses_before_any_output_is_not_billed(
    message: Json, usage: Usage, *, is_stream: bool
) -> None:
    """As litellm 1.110.2 itself made of such a message and of such a stream."""
    said = {"index": 0, "finish_reason": "content_filter"}
    if is_stream:
        pieces = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "", **message}}]},
            {"choices": [said | {"delta": {}}]},
            {"choices": [], "usage": FEW},
        ]
        backend = LitellmBackend("b", complete=FakeLitellm(stream_of(*pieces)))
        chunks = await read_stream.collect(backend, make_call(stream=True))
    else:
        answer = Piece({"choices": [said | {"message": {"role": "assistant", **message}}], "usage": FEW})
        chunks = await read_stream.collect(LitellmBackend("b", complete=FakeLitellm(answer)), make_call())
    [counted] = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert counted == usage
    has_text = bool(message.get("content"))
    assert (any(chunk.has_output for chunk in chunks), any(chunk.output_characters for chunk in chunks)) == (
        has_text,
        has_text,
    )


@pytest.mark.parametrize(
    ("model", "counted", "booked", "is_estimated"),
    [
        ("us.openai.gpt-5.6-sol", {"text_tokens": 4995, "cache_creation_tokens": 4993}, 4995, True),
        ("openai.gpt-5.6-sol", {"text_tokens": 12401, "cached_tokens": 8367, "cache_write_tokens": 4032}, 12401, True),
        ("us.openai.gpt-5.6-sol", {"cached_tokens": 2000}, 9988, False),  # OpenAI's own usage
        ("us.openai.gpt-5.6-sol", {"text_tokens": 9988}, 9988, False),
        ("us.openai.gpt-5.6-sol", {"text_tokens": 2, "cached_tokens": 9986}, 9988, False),  # as Converse counts
        ("us.anthropic.claude-opus-5", {"text_tokens": 4995, "cache_creation_tokens": 4993}, 9988, False),
    ],
)
async def test_a_stream_of_gpts_at_bedrock_has_its_cache_once(
    model: str, counted: dict[str, int], booked: int, *, is_estimated: bool
) -> None:
    input_tokens = booked + sum(counted.values()) - counted["text_tokens"] if is_estimated else booked
    usage = {"prompt_tokens": input_tokens, "completion_tokens": 19, "prompt_tokens_details": counted}

    async def pieces() -> AsyncIterator[Piece]:
        yield Piece({"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]})
        yield Piece({"choices": [{"index": 0, "delta": {}}], "usage": usage | {"total_tokens": input_tokens + 19}})

    backend = LitellmBackend("b", complete=FakeLitellm(pieces()))
    chunks = await read_stream.collect(backend, make_call(model=f"bedrock/{model}", stream=True))
    [found] = [chunk.usage for chunk in chunks if chunk.usage]
    assert (found.input_tokens, found.is_estimated) == (booked, is_estimated)


AT = "http://169.254.169.254/latest"


FETCHED: list[tuple[str, dict[str, object]]] = [
    ("bedrock/amazon.nova-pro-v1:0", {"type": "image_url", "image_url": {"url": AT}}),
    ("gemini/gemini-2.5-flash", {"type": "image_url", "image_url": "\x01 HT\tTP://169.254.169.254"}),
    ("bedrock/anthropic.claude-3", {"type": "text", "text": "x", "source": {"type": "text", "url": AT}}),
    ("anthropic/claude", {"type": "file", "file": {"file_data": AT}}),
    ("azure/o3", {"type": "file", "file": {"file_id": AT}}),
    ("ollama/llava", {"type": "tool_result", "content": [{"image_url": AT}]}),
]


@pytest.mark.parametrize(("model", "part"), FETCHED)
async def test_nothing_is_fetched_from_here_because_a_message_names_its_address(
    model: str, part: dict[str, object]
) -> None:
    fake = FakeLitellm(PLAIN)
    body = BODY | {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]}
    with pytest.raises(Untranslatable, match="is an address, which b cannot take; send it as base64"):
        await LitellmBackend("b", complete=fake).open(make_call(body, model=model))
    assert fake.arguments == {}


async def test_nor_because_an_earlier_answer_brought_it() -> None:
    drawn = {"role": "assistant", "content": "y", "images": [{"type": "image_url", "image_url": {"url": AT}}]}
    call = make_call(BODY | {"messages": [*HELLO, drawn, *HELLO]}, model="gemini/gemini-2.5-flash")
    with pytest.raises(Untranslatable, match="image_url is an address"):
        await LitellmBackend("b", complete=FakeLitellm(PLAIN)).open(call)


async def test_a_pictures_address_reaches_providers_that_take_one() -> None:
    said = {"type": "text", "text": AT, "annotations": [{"type": "url_citation", "url": AT}]}
    messages = [{"role": "user", "content": [said, {"type": "image_url", "image_url": {"url": AT}}]}]
    fake = FakeLitellm(PLAIN)
    await LitellmBackend("b", complete=fake).open(make_call(BODY | {"messages": messages}))
    assert fake.arguments["messages"] == messages


async def stream_of(*steps: object) -> AsyncIterator[Piece]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            yield Piece(step)


BEGUN = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


SAID = {"choices": [{"index": 0, "delta": {"content": "hi"}}]}


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


async def collect(*steps: object) -> list[Chunk]:
    backend = LitellmBackend("b", complete=FakeLitellm(stream_of(*steps)))
    return await read_stream.collect(backend, make_call(stream=True, timeouts=Timeouts(1, 0.2, 0.2)))


async def test_a_stream() -> None:
    chunks = await collect(SAID, STOP, USAGE)
    assert [chunk.has_output for chunk in chunks] == [True, False, False, False]
    assert chunks[-1].is_done
    assert [chunk.usage.input_tokens for chunk in chunks if chunk.usage] == [3]


BREAKS: list[tuple[list[object], type[BackendError]]] = [
    ([SAID], StreamBroken),
    ([SAID, ValueError("bug")], StreamBroken),
    ([SAID, 5.0], StreamStalled),
    ([error_named("RateLimitError", 429)], RateLimited),
    ([0.15, BEGUN, 0.15, SAID, STOP], UpstreamTimeout),
    ([], UnreadableAnswer),
]


@pytest.mark.parametrize(("steps", "kind"), BREAKS)
async def test_breaks(steps: list[object], kind: type[BackendError]) -> None:
    with pytest.raises(BackendError) as caught:
        await collect(*steps)
    assert type(caught.value) is kind


async def test_other_operations_and_bodies_are_refused() -> None:
    backend = LitellmBackend("b", complete=FakeLitellm(PLAIN))
    for call in (Call("embeddings", "m", b"{}", False, "r"), Call("chat.completions", "m", b"[]", False, "r")):
        with pytest.raises(UpstreamRejected):
            await backend.open(call)
    assert (await backend.health()).is_healthy


CHILD = """
import asyncio, json, sys
from backends.errors import UnreadableAnswer
from backends.formats.past_thinking import carry, detail_of
from backends.litellm_backend import LitellmBackend
from backends.protocol import Call
assert "litellm" not in sys.modules

async def main():
    backend = LitellmBackend("b", settings={"api_key": "k", "api_base": sys.argv[1]})
    found = []
    for stream in (False, True):
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
        reply = await backend.open(Call("chat.completions", "openai/gpt-x", body, stream, "r-1"))
        chunks = [chunk async for chunk in reply]
        await reply.aclose()
        usage = next(chunk.usage for chunk in chunks if chunk.usage)
        found.append([sum(chunk.output_characters for chunk in chunks), usage.input_tokens, chunks[-1].is_done])
    for model, stream in (("openai/gpt-x", False),) * 3 + (("anthropic/claude-x", False), ("anthropic/claude-x", True)):
        try:
            reply = await backend.open(Call("chat.completions", model, body, stream, "r-1"))
            found.append([chunk.data.decode() async for chunk in reply])
        except UnreadableAnswer as error:
            found.append(str(error))
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.integration
@pytest.mark.skipif(
    not importlib.util.find_spec("litellm"), reason="litellm is missing: pip install 'breakeven[litellm]'"
)
async def test_one_real_call_plain_and_streamed_and_answers_that_litellm_cannot_read() -> None:
    """The latter were a 500 or a failed connection of its own, and booked as free."""
    answers = (b"{}", b'{"choices": [{}]}', b"{", b'{"usage": {"input_tokens": 9, "output_tokens": 9}}')
    odd = [Raw((answer,), headers={"content-type": "application/json"}) for answer in answers]
    odd.append(Raw((b'data: {"type": "content_block_start", "index": 0}\n\n',)))
    async with ScriptedProvider(Outcome(), Outcome(), *odd) as provider:
        command = [sys.executable, "-c", CHILD, provider.base_url]
        result = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, timeout=600
        )
    assert result.returncode == 0, result.stderr
    unreadable = "b sent an answer that litellm cannot read"
    assert json.loads(result.stdout.splitlines()[-1]) == [[13, 12, True], [13, 12, True], *[unreadable] * 5]
