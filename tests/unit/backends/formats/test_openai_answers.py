"""OpenAI's wire format: how an answer that is no stream is parsed."""

import json

import pytest

from backends.errors import (
    UnreadableAnswer,
    UpstreamAuth,
    UpstreamUnavailable,
)
from backends.formats.openai import OpenAIStreamReader, read_answer
from backends.protocol import Chunk
from backends.usage import EngineTimings, Usage
from tests.unit.backends.formats.test_openai import USAGE

ANSWER: dict[str, object] = {
    "id": "x",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
    "x_breakeven": {"gpu_seconds": 0.25, "queue_seconds": 0.0},
}


def test_a_plain_answer_passes_unchanged() -> None:
    body = json.dumps(ANSWER, indent=3).encode()
    assert read_answer(body, backend="b") == Chunk(
        body,
        has_output=True,
        output_characters=5,
        finish_reason="stop",
        usage=Usage(3, output_tokens=2),
        timings=EngineTimings(0.25, 0.0),
        is_done=True,
    )


@pytest.mark.parametrize(
    ("told", "calls"),
    [
        ([[{"type": "search", "index": 0}], [{"type": "search", "index": 0}, {"type": "visit", "index": 1}]], 2),
        ([[{"type": "search"}], [{"type": "visit"}]], 1),
        ([[], None], 0),
    ],
)
def test_tools_that_groq_ran_are_counted(told: list[object], calls: int) -> None:
    """Its `browser_search` was booked as free."""
    expected = Usage(3, output_tokens=2, other_tool_calls=calls)
    reader = OpenAIStreamReader("b", wants_usage_chunk=True)
    for tools in told:
        reader.read(json.dumps({"choices": [{"delta": {"executed_tools": tools}}]}).encode())
    [last] = reader.read(json.dumps({"choices": [], "x_groq": {"usage": USAGE}}).encode())
    assert last.usage == expected
    message = {"content": "hello", "executed_tools": told[1]}
    answer = read_answer(json.dumps({"choices": [{"message": message}], "usage": USAGE}).encode(), backend="b")
    assert answer.usage == expected


@pytest.mark.parametrize("usage", [b'{"prompt_tokens":8,"total_tokens":8}', b'{"total_tokens":8}'])
def test_an_embedding_is_output_without_text(usage: bytes) -> None:
    body = b'{"object":"list","data":[],"usage":%b}' % usage
    chunk = read_answer(body, backend="b", has_choices=False)
    assert (chunk.has_output, chunk.output_characters, chunk.usage) == (True, 0, Usage(8))


@pytest.mark.parametrize(
    ("body", "characters"),
    [
        (b"", 0),
        (b"<html>", 0),
        (b"7", 0),
        (b"[]", 0),
        (b' {"a":1', 7),
        (b"[" * 100_000, 0),
        (b'{"choices":null,"base_resp":{"status_code":0,"status_msg":""}}', 0),
    ],
)
def test_what_is_no_answer_may_be_asked_of_another(body: bytes, characters: int) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read_answer(body, backend="b")
    assert caught.value.output_characters == characters, "a page for people is no part of an answer"


@pytest.mark.parametrize("choices", [[], [{"finish_reason": "abort", "message": {"content": "Hi"}}]])
def test_an_answer_that_its_provider_gave_up_may_be_asked_of_another(choices: list[object]) -> None:
    """OpenRouter sends it with status 200 if its provider failed; it used to be passed on as an answer."""
    with pytest.raises(UnreadableAnswer, match="gave up") as caught:
        read_answer(json.dumps({"choices": choices, "usage": USAGE}).encode(), backend="b")
    assert (caught.value.usage, caught.value.output_characters) == (Usage(3, output_tokens=2), 2 * len(choices))


def test_an_error_in_place_of_an_answer_is_no_answer_that_cannot_be_read() -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        read_answer(b'{"error":"no"}', backend="b")
    assert type(caught.value) is UpstreamUnavailable
    with pytest.raises(UpstreamAuth):
        read_answer(
            b'{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}', backend="b"
        )


@pytest.mark.parametrize("choice", [{"index": 0}, {"index": 0, "message": None}])
def test_a_filtered_choice_has_a_message(choice: dict[str, object]) -> None:
    """Gemini's compatible endpoint sends none, on which OpenAI's clients break."""
    choice |= {"finish_reason": "content_filter: PROHIBITED_CONTENT"}
    chunk = read_answer(json.dumps({"id": "x", "choices": [choice]}).encode(), backend="b")
    assert json.loads(chunk.payload) == {
        "id": "x",
        "choices": [choice | {"message": {"role": "assistant", "content": None}}],
    }


def test_an_answer_of_perplexity_has_its_message_beside_an_empty_delta() -> None:
    choice = {"message": {"content": "Paris"}, "delta": {"content": ""}, "finish_reason": "stop"}
    chunk = read_answer(json.dumps({"choices": [choice]}).encode(), backend="b")
    assert (chunk.has_output, chunk.output_characters) == (True, 5)


def test_an_answer_with_nan_reaches_the_caller_as_json() -> None:
    chunk = read_answer(b'{"choices":[{}],"usage":{"prompt_tokens":NaN},"x":-Infinity}', backend="b")
    assert chunk.is_usage_malformed
    assert json.loads(chunk.payload, parse_constant=pytest.fail) == {
        "choices": [{}],
        "usage": {"prompt_tokens": "NaN"},
        "x": "-Infinity",
    }
