"""OpenAI's wire format: how each event of a stream is parsed."""

import json
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import BackendError, UpstreamUnavailable
from backends.formats.openai import OpenAIStreamReader, event_bytes, read_answer
from backends.protocol import Chunk
from backends.usage import EngineTimings, Usage


def read(*events: object, wants_usage: bool = True) -> list[Chunk]:
    reader = OpenAIStreamReader("b", wants_usage_chunk=wants_usage)
    return [
        chunk
        for event in events
        for chunk in reader.read(event if isinstance(event, bytes) else json.dumps(event).encode())
    ]


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


OUTPUTS: list[tuple[object, bool, int]] = [
    (delta(role="assistant", content=""), False, 0),
    (delta(content="héllo"), True, 5),
    (delta(content=None), False, 0),
    (delta(content=" "), True, 1),
    (delta(reasoning_content="hm"), True, 2),
    (delta(reasoning="hm"), True, 2),
    (delta(reasoning="hm", reasoning_content="hm"), True, 2),
    (delta(content="a", reasoning_content="hm"), True, 3),
    (delta(refusal="no"), True, 2),
    (
        delta(tool_calls=[{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        True,
        1,
    ),
    (delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a'}}]), True, 3),
    (delta(content=None, function_call={"name": "f", "arguments": "{}"}), True, 3),
    (delta(function_call={"name": "f"}, tool_calls=[{"index": 0, "function": {"name": "f"}}]), True, 1),
    (delta(audio={"data": "UklGRg=="}), True, 0),
    (delta(content=[{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]), True, 2),
    (delta(content=[{"type": "text", "text": "hi"}, 7]), True, 2),
    ({"choices": [{"index": 0, "text": "plain", "finish_reason": None}]}, True, 5),
    ({"choices": [], "prompt_filter_results": []}, False, 0),
    (delta(content=7), False, 0),
    ({"choices": [{"index": "0", "delta": {"content": "hi", "tool_calls": 3}}]}, True, 2),
    ({"choices": [7, {"delta": "x"}]}, False, 0),
]


@pytest.mark.parametrize(("event", "has_output", "characters"), OUTPUTS)
def test_output(event: object, has_output: bool, characters: int) -> None:
    [chunk] = read(event)
    assert (chunk.has_output, chunk.output_characters) == (has_output, characters)
    assert chunk.payload == b"data: " + json.dumps(event).encode() + b"\n\n"


OWN_EVENTS: list[object] = [
    {"tool": "execute_code", "label": "print(2)", "toolCallId": "v0", "status": "running"},
    {"choices": None, "object": "chat.completion.chunk"},
    {},
]


@pytest.mark.parametrize("own", OWN_EVENTS)
def test_what_is_no_chunk_is_not_passed_on(own: object) -> None:
    """The first is hermes-agent's progress, on which the AI SDK and LibreChat break (its #100705, LibreChat #12919)."""
    said = [delta(content="a"), own, delta("stop")]
    one_by_one = read(*said, b"[DONE]")
    assert [chunk.payload == b"" for chunk in one_by_one] == [False, True, False, False]
    together = OpenAIStreamReader("b", wants_usage_chunk=False, joins_events=True).join(
        deque(json.dumps(event).encode() for event in said)
    )
    assert together is not None
    assert together.payload == b"".join(chunk.payload for chunk in one_by_one[:-1])


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


USAGES: list[tuple[str, object, Usage | None, bool]] = [
    ("openai", {"choices": [], "usage": USAGE}, Usage(3, output_tokens=2), False),
    ("with the finish, as Mistral does", delta("stop") | {"usage": USAGE}, Usage(3, output_tokens=2), False),
    ("groq", delta("stop") | {"x_groq": {"id": "r", "usage": USAGE}}, Usage(3, output_tokens=2), False),
    (
        "moonshot",
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]},
        Usage(3, output_tokens=2),
        False,
    ),
    (
        "tier",
        {"choices": [], "usage": USAGE, "service_tier": "flex"},
        Usage(3, output_tokens=2, service_tier="flex"),
        False,
    ),
    ("null", delta(content="x") | {"usage": None}, None, False),
    ("negative", {"choices": [], "usage": USAGE | {"completion_tokens": -1}}, None, True),
    ("text", {"choices": [], "usage": "3"}, None, True),
    ("bool", {"choices": [], "usage": True}, None, True),
    ("NaN", b'{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":1}}', None, True),
    ("NaN output", b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":NaN}}', None, True),
    ("1e400", b'{"choices":[],"usage":{"prompt_tokens":1e400,"completion_tokens":1}}', None, True),
    ("2^63", b'{"choices":[],"usage":{"prompt_tokens":9223372036854775808}}', None, True),
    ("2^200", b'{"choices":[],"usage":{"prompt_tokens":%d}}' % 2**200, None, True),
]


@pytest.mark.parametrize(("who", "event", "usage", "is_malformed"), USAGES, ids=[row[0] for row in USAGES])
def test_usage(who: str, event: object, usage: Usage | None, is_malformed: bool) -> None:
    [chunk] = read(event)
    assert (chunk.usage, chunk.is_usage_malformed) == (usage, is_malformed)
    json.loads(chunk.payload.removeprefix(b"data: "), parse_constant=pytest.fail)


@pytest.mark.parametrize("finish", ["stop", None])
def test_a_usage_told_before_the_end_is_of_so_far(finish: str | None) -> None:
    """Gemini's and Perplexity's streams tell one with each event; of those that broke off, the last was booked as
    exact. Without a finish reason it is final at the end."""
    events = [delta(content="x") | {"usage": {"prompt_tokens": 3, "completion_tokens": count}} for count in (1, 2)]
    last = delta(finish) | {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    chunks = read(*events, last, b"[DONE]")
    so_far = [Usage(3, output_tokens=1), Usage(3, output_tokens=2), None if finish else Usage(3, output_tokens=4)]
    assert [chunk.usage_so_far for chunk in chunks] == [*so_far, None]
    final = Usage(3, output_tokens=4)
    assert [chunk.usage for chunk in chunks] == [None, None, *((final, None) if finish else (None, final))]


def test_a_usage_chunk_nobody_asked_for_is_hidden_and_null_usage_removed() -> None:
    said = b'{"index":0,"delta":{"content":"say \\",\\"usage\\":null"},"finish_reason":null}'
    plain = b'{"id":"x","choices":[' + said + b'],"usage":null}'
    first, last = read(plain, {"choices": [], "usage": USAGE}, wants_usage=False)
    assert first.payload == b"data: " + plain.replace(b',"usage":null}', b"}") + b"\n\n"
    assert json.loads(first.payload[6:])["choices"][0]["delta"]["content"] == 'say ","usage":null'
    assert (last.payload, last.usage) == (b"", Usage(3, output_tokens=2))


def test_timings_of_our_engine() -> None:
    [chunk] = read({"choices": [], "usage": USAGE, "x_breakeven": {"gpu_seconds": 0.25, "queue_seconds": 0.0}})
    assert chunk.timings == EngineTimings(0.25, 0.0)


def llama_cpps(usage: tuple[int, int, int], **fields: object) -> dict[str, object]:
    """As llama-server 0.7.0 reports what one choice took, here with (input, cached, output)."""
    prompt, cached, completion = usage
    told = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"usage": told, "timings": {"cache_n": cached, "predicted_n": completion}, **fields}


def test_llama_cpp_reports_each_choice_of_a_stream_by_itself() -> None:
    said = [{"choices": [{"index": place, "delta": {"content": "a"}}]} for place in (0, 1)]
    told = [llama_cpps((31, 30, count), choices=[], object="chat.completion.chunk") for count in (3, 4)]
    last = read(*said, told[0], *said[:1], told[1])[-1]
    assert last.usage == Usage(input_tokens=31, cached_input_tokens=30, output_tokens=7)


def test_llama_cpp_reports_each_prompt_of_a_stream_by_itself_after_an_event_of_nothing() -> None:
    ends = [
        llama_cpps(usage, choices=[{"index": place, "text": "", "finish_reason": "stop"}], object="text_completion")
        for place, usage in enumerate([(2, 1, 3), (5, 0, 4)])
    ]
    chunks = read(b"null", *ends, b"[DONE]")
    assert [chunk.payload for chunk in chunks][-1] == b"data: [DONE]\n\n"
    assert [chunk.usage for chunk in chunks][1] == Usage(input_tokens=7, cached_input_tokens=1, output_tokens=7)


@pytest.mark.parametrize(
    ("answers", "kind", "usage"),
    [
        (["four", "eight at most"], "chat", Usage(input_tokens=31, output_tokens=17, is_estimated=True)),
        (["", ""], "chat", Usage(input_tokens=31, output_tokens=8, is_estimated=True)),
        (["four"], "chat", Usage(input_tokens=31, output_tokens=4)),
        (["four", "eight at most"], "text", None),
        (["four"], "text", Usage(input_tokens=31, output_tokens=4)),
    ],
)
def test_llama_cpp_reports_the_first_choice_alone_of_a_whole_answer(
    answers: list[str], kind: str, usage: Usage | None
) -> None:
    choices = [{"index": n, "message": {"content": said}} for n, said in enumerate(answers)]
    if kind == "text":
        choices = [{"index": n, "text": said} for n, said in enumerate(answers)]
    body = llama_cpps((31, 0, 4), choices=choices, object=f"{kind}{'.' if kind == 'chat' else '_'}completion")
    assert read_answer(json.dumps(body).encode(), backend="b").usage == usage


def test_white_space_inside_json_may_hold_newlines() -> None:
    assert event_bytes(b'{\n"a": 1}') == b'data: { "a": 1}\n\n'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "usage", "delta", "content", "index", "finish_reason", "error", "tool_calls", "text"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=70)
@given(
    st.dictionaries(
        st.sampled_from(["choices", "usage", "error", "object", "x_groq", "x_breakeven", "service_tier"]), JSON
    )
)
def test_no_event_crashes_the_reader(event: dict[str, object]) -> None:
    try:
        [chunk] = read(json.dumps(event).encode())
    except BackendError:
        return
    assert chunk.payload.startswith(b"data: ") or not (isinstance(event.get("choices"), list) or event.get("usage"))
    json.loads(chunk.payload[6:] or b"{}", parse_constant=pytest.fail)


def test_a_key_that_is_not_utf8_is_no_answer() -> None:
    broken = b'{"id":"x","choices":[],"usage":{"\x80prompt_tokens":3}}'
    with pytest.raises(UpstreamUnavailable, match="not JSON"):
        OpenAIStreamReader("b", wants_usage_chunk=True).read(broken)
    with pytest.raises(UpstreamUnavailable, match="not JSON"):
        read_answer(broken, backend="b")
