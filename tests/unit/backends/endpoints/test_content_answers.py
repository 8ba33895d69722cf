"""Answers translated for callers of Gemini's format: whole, and piece by piece."""

import json
from time import process_time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.endpoints.content_events import ContentEventWriter, ContentHead, content_from_answer, last_content_event
from backends.endpoints.content_wrapping import Unwrapper, Wrapping
from backends.endpoints.tool_call_deltas import EndlessAnswer
from backends.formats.chat_chunks import Answer, Head, delta_chunk, done_chunk, finish_chunk, usage_chunk
from backends.formats.thought_signatures import details_in
from backends.http.stream_reader import MOST_CALLS
from backends.protocol import Chunk
from backends.usage import Usage

Json = dict[str, Any]
HEAD = Head("id", "m", 0)
CONTENT = ContentHead("r-1", "m")
USAGE = Usage(12, 5, output_tokens=9, reasoning_tokens=5)
METADATA = {
    "promptTokenCount": 12,
    "cachedContentTokenCount": 5,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 21,
}


def whole(message: Json, reason: Any = "stop", head: ContentHead = CONTENT, **choice: Any) -> Json:
    choices = [{"index": 0, "message": message, "finish_reason": reason, **choice}]
    return cast(Json, json.loads(content_from_answer(json.dumps({"choices": choices}).encode(), USAGE, head)))


def streamed(deltas: list[Json], reason: Any = "stop", head: ContentHead = CONTENT) -> list[Json]:
    writer = ContentEventWriter(head)
    chunks = [delta_chunk(HEAD, delta) for delta in deltas]
    chunks += [finish_chunk(HEAD, reason), usage_chunk(HEAD, USAGE, is_shown=False, is_malformed=False), done_chunk()]
    return [event for chunk in chunks for event in events_of(writer.write(chunk))]


def events_of(payload: bytes) -> list[Json]:
    found = payload.split(b"\n\n")
    assert found.pop() == b""
    return [json.loads(one.removeprefix(b"data: ")) for one in found]


def parts_of(event: Json) -> list[Json]:
    return event["candidates"][0]["content"]["parts"]


def test_a_call_that_was_cut_off_is_not_passed_on() -> None:
    """Google's clients run each call that comes, and this one came without its arguments."""
    calls = [
        {"index": place, "id": f"c{place}", "function": {"name": "f", "arguments": arguments}}
        for place, arguments in enumerate(["", '{"a": 1}', '{"a'])
    ]
    made = [
        {"functionCall": {"id": f"c{place}", "name": "f", "args": args}} for place, args in enumerate([{}, {"a": 1}])
    ]
    for reason, told in (("length", made), ("stop", [*made, {"functionCall": {"id": "c2", "name": "f", "args": {}}}])):
        assert parts_of(whole({"tool_calls": calls}, reason)) == told
        assert parts_of(streamed([{"tool_calls": calls}], reason)[-1]) == told


def test_a_text() -> None:
    assert whole({"content": "hi"}) == {
        "candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": METADATA,
        "modelVersion": "m",
        "responseId": "r-1",
    }
    first, last = streamed([{"role": "assistant", "content": ""}, {"content": "hi"}])
    assert first == {
        "candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
        "modelVersion": "m",
        "responseId": "r-1",
    }
    assert last["usageMetadata"] == METADATA
    assert last["candidates"] == [
        {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}
    ]


def test_no_client_finds_the_end_of_a_line_inside_of_an_event() -> None:
    said = "a\u2028b\u2029c\x85d"
    event = ContentEventWriter(CONTENT).write(delta_chunk(HEAD, {"content": said}))
    assert event.decode().splitlines() == [event.decode().strip(), ""]
    assert parts_of(events_of(event)[0]) == [{"text": said}]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("stop", "STOP"),
        ("length", "MAX_TOKENS"),
        ("tool_calls", "STOP"),
        ("content_filter", "SAFETY"),
        ("model_context_window_exceeded", "MAX_TOKENS"),
        ("new", "STOP"),
        ([], "STOP"),
    ],
)
def test_why_an_answer_ended(reason: object, said: str) -> None:
    assert whole({"content": "x"}, reason)["candidates"][0]["finishReason"] == said
    assert streamed([{"content": "x"}], reason)[-1]["candidates"][0]["finishReason"] == said


def test_a_usage_that_nobody_counted_is_nought() -> None:
    told = json.loads(content_from_answer(b'{"choices":[{"message":{"content":"x"}}]}', None, CONTENT))
    assert told["usageMetadata"] == {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}


def test_calls_come_whole_with_what_is_signed_of_them() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    signed = {"extra_content": {"google": {"thought_signature": "Eq=="}}}
    calls = [{"id": "c1", "function": function} | signed, {"function": {"name": "g", "arguments": "broken"}}]
    expected = [
        {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "Eq=="},
        {"functionCall": {"id": "call_r-1_0_1", "name": "g", "args": {}}},
    ]
    assert parts_of(whole({"content": None, "tool_calls": calls}, "tool_calls")) == expected
    pieces = [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}} | signed]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {"tool_calls": [{"index": 1, "function": {"name": "g", "arguments": "broken"}}]},
    ]
    [last] = streamed(cast(list[Json], pieces), "tool_calls")
    assert parts_of(last) == expected


def test_a_renamed_function_is_called_by_its_own_name() -> None:
    head = ContentHead("r-1", "m", names={"files_read_1": "files.read"})
    called: Json = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "files_read_1", "arguments": "{}"}}]}
    expected = [{"functionCall": {"id": "c", "name": "files.read", "args": {}}}]
    assert parts_of(whole(called, "tool_calls", head)) == expected
    assert parts_of(streamed([called], "tool_calls", head)[-1]) == expected


def test_thoughts_are_shown_to_whoever_asked_for_them() -> None:
    said = {"reasoning_content": "hm", "content": "hi"}
    assert parts_of(whole(said)) == [{"text": "hi"}]
    shown = ContentHead("r-1", "m", shows_thoughts=True)
    both = [{"text": "hm", "thought": True}, {"text": "hi"}]
    assert parts_of(whole(said, head=shown)) == both
    assert parts_of(streamed([said], head=shown)[0]) == both


def test_what_a_provider_encrypted_is_kept_by_the_caller() -> None:
    detail = {"type": "reasoning.encrypted", "data": "breakeven:openai:zzz", "index": 0}
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    [part] = parts_of(whole({"reasoning_details": [detail], "tool_calls": [call]}))
    assert details_in(part["thoughtSignature"]) == [(0, "breakeven:openai:zzz")]
    part = parts_of(streamed([{"content": "hi"}, {"reasoning_details": [detail]}])[-1])[-1]
    assert (part["text"], details_in(part["thoughtSignature"])) == ("", [(0, "breakeven:openai:zzz")])


def test_how_sure_a_model_was() -> None:
    tokens = [
        {"token": "h", "logprob": -1.0, "top_logprobs": [{"token": "x", "logprob": -2.0}]},
        {"token": "i", "logprob": -3.0, "top_logprobs": []},
    ]
    candidate = whole({"content": "hi"}, logprobs={"content": tokens})["candidates"][0]
    assert candidate["avgLogprobs"] == -2.0
    absurd = whole({"content": "hi"}, logprobs={"content": [{"token": "h", "logprob": -(10**400)}]})
    assert absurd["candidates"][0]["avgLogprobs"] == 0.0
    assert candidate["logprobsResult"] == {
        "chosenCandidates": [{"token": "h", "logProbability": -1.0}, {"token": "i", "logProbability": -3.0}],
        "topCandidates": [{"candidates": [{"token": "x", "logProbability": -2.0}]}, {"candidates": []}],
    }


def test_several_candidates() -> None:
    writer = ContentEventWriter(CONTENT)
    choices = [
        {"index": 1, "delta": {"content": "b"}, "finish_reason": "length"},
        {"index": 0, "delta": {"content": "a"}, "finish_reason": None},
    ]
    payload = b"data: " + json.dumps({"choices": choices}).encode() + b"\n\n"
    [event] = events_of(writer.write(Chunk(payload)))
    assert [(one["index"], one["content"]["parts"][0]["text"]) for one in event["candidates"]] == [(1, "b"), (0, "a")]
    [last] = events_of(writer.write(done_chunk()))
    assert [(one["index"], one["finishReason"]) for one in last["candidates"]] == [(0, "STOP"), (1, "MAX_TOKENS")]


def test_a_number_that_no_candidate_has_is_not_remembered() -> None:
    writer = ContentEventWriter(CONTENT)
    for index in (-1, 10**9, 10**30, True):
        writer.write(Chunk(b"data: " + json.dumps({"choices": [{"index": index, "delta": {}}]}).encode()))
    [last] = events_of(writer.write(done_chunk()))
    assert [one["index"] for one in last["candidates"]] == [0]


def test_calls_without_end_are_not_remembered_in_whichever_candidate() -> None:
    calls = [{"function": {"name": "f"}}] * (MOST_CALLS // 2)
    choices = [{"index": index, "delta": {"tool_calls": calls}} for index in range(3)]
    with pytest.raises(EndlessAnswer):
        ContentEventWriter(CONTENT).write(Chunk(b"data: " + json.dumps({"choices": choices}).encode()))


def test_an_end_of_our_own() -> None:
    [event] = events_of(last_content_event("length", USAGE, CONTENT))
    assert event["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert event["usageMetadata"] == METADATA


@pytest.mark.parametrize(
    ("text", "wrapping", "said"),
    [
        ('{"answer": [{"a": {}}] }\n', "json", '[{"a": {}}]'),
        ('{"answer":"b"}', "json", '"b"'),
        ('{"answer":"b\\u00e9"}', "text", "b\u00e9"),
        ('{"other": [1]}', "json", '{"other": [1]}'),
        ("[1, 2]" * 20, "json", "[1, 2]" * 20),
        ("", "json", ""),
        ('{"answer": [1]}', "", '{"answer": [1]}'),
    ],
)
def test_what_was_asked_for_inside_of_an_object_is_taken_out(text: str, wrapping: Wrapping, said: str) -> None:
    head = ContentHead("r-1", "m", wrapping=wrapping)
    assert "".join(part["text"] for part in parts_of(whole({"content": text}, head=head))) == said
    events = streamed([{"content": letter} for letter in text], head=head)
    assert "".join(part["text"] for event in events for part in parts_of(event)) == said


def test_an_answer_that_was_cut_off_keeps_all_its_ends() -> None:
    head = ContentHead("r-1", "m", wrapping="json")
    assert parts_of(whole({"content": '{"answer": [{"a": {}}'}, "length", head=head)) == [
        {"text": '[{"a": {'},
        {"text": "}}"},
    ]


@settings(deadline=None)
@given(
    st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    st.data(),
)
def test_however_it_is_cut_the_inside_comes_out(value: object, data: st.DataObject) -> None:
    text = json.dumps({"answer": value})
    cut = data.draw(st.integers(0, len(text)))
    one = Unwrapper("json")
    said = one.feed(text[:cut]) + one.feed(text[cut:]) + one.end(is_cut=False)
    assert json.loads(said) == value


def test_blanks_before_the_end_are_not_looked_at_again_and_again() -> None:
    began = process_time()
    one = Unwrapper("json")
    said = one.feed(f'{{"answer": [{" " * 200_000}1]}} ') + one.end(is_cut=False)
    assert said == f"[{' ' * 200_000}1]"
    one = Unwrapper("json")
    assert "".join(map(one.feed, ['{"answer": 1', *[" } "] * 20_000])) == "1"
    assert process_time() - began < 1  # it took minutes, blocking the worker


def test_a_whole_answer_and_a_stream_say_the_same() -> None:
    answer = Answer(HEAD)
    answer.text.append("hi")
    told = json.loads(content_from_answer(answer.chunk().payload, USAGE, CONTENT))
    assert parts_of(told) == parts_of(streamed([{"content": "hi"}])[0])
