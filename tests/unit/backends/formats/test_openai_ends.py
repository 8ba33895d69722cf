"""OpenAI's wire format: how a stream ends, and whether its answer is whole."""

import json
from collections import deque

import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    Untranslatable,
    UpstreamAuth,
    UpstreamUnavailable,
)
from backends.formats.openai import OpenAIStreamReader, read_answer
from backends.protocol import Chunk
from backends.usage import Usage
from tests.unit.backends.formats.test_openai import USAGE, delta, read


def ends(*events: object) -> list[Chunk] | type[BackendError]:
    reader = OpenAIStreamReader("b", wants_usage_chunk=True)
    try:
        for event in events:
            reader.read(event if isinstance(event, bytes) else json.dumps(event).encode())
        return [] if reader.is_done else reader.end()
    except BackendError as error:
        return type(error)


def choice(index: int, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": finish}]}


@pytest.mark.parametrize("index", [-1, 1_001, 10**9, 10**30])
def test_a_number_that_no_choice_has_is_not_remembered(index: int) -> None:
    reader = OpenAIStreamReader("b", wants_usage_chunk=True)
    [chunk] = reader.read(json.dumps(choice(index)).encode())
    assert (chunk.has_output, chunk.output_characters) == (True, 1)
    reader.read(json.dumps(choice(0, "stop")).encode())
    assert reader.end()[0].is_done, "it was taken for the first"


ENDED_TWICE = (
    b'{"id": "chat1", "model": "tf", "created": 1795874419, "object": "chat.completion.chunk", "choices": [{"index": '
    b'0, "delta": {"content": ""}, "logprobs": null, "finish_reason": "length"}], '
    b'"usage": {"prompt_tokens": 33, "completion_tokens": 5, "total_tokens": 38}}',
    b'{"id": "chat1", "model": "tf", "created": 1795874429, "object": "chat.completion.chunk", "choices": [{"index": '
    b'0, "delta": {}, "finish_reason": "stop"}], '
    b'"usage": {"prompt_tokens": 33, "completion_tokens": 5, "total_tokens": 38}}',
)
"""As Xinference 4.1.0 ends the chats of its transformers engine."""


@pytest.mark.parametrize("is_joined", [False, True])
def test_an_answer_that_was_cut_is_not_said_to_be_whole_afterwards(*, is_joined: bool) -> None:
    reader = OpenAIStreamReader("b", wants_usage_chunk=True, joins_events=True)
    joined = reader.join(deque(ENDED_TWICE)) if is_joined else None
    chunks = [joined] if joined else [chunk for data in ENDED_TWICE for chunk in reader.read(data)]
    told = b"".join(chunk.payload for chunk in chunks)
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]
    assert told.count(b"length") == told.count(b'"finish_reason":null') == 1
    assert b"stop" not in told
    assert (chunks[-1].usage, reader.end()[0].is_done) == (Usage(33, output_tokens=5), True)
    assert [chunk.finish_reason for chunk in read(delta("null", content="x"), delta("stop"))] == [None, "stop"]
    [called, ended] = read(delta("stop"), delta("tool_calls"))
    assert (called.finish_reason, ended.finish_reason) == ("stop", "tool_calls"), "a later word may know more"


ERROR_FINISH = "error_finish"


THROTTLED = 'id:1\nevent:error\n:HTTP_STATUS/429\ndata:{"code":"Throttling.AllocationQuota","message":"..."}'


ENDS: list[tuple[str, list[object], bool | type[BackendError]]] = [
    ("nothing at all", [], UnreadableAnswer),
    ("only DONE", [b"[DONE]"], UnreadableAnswer),
    ("cut after KoboldCpp's reason for no end yet", [choice(0, "null")], StreamBroken),
    (
        "an error of the provider's own form, then DONE",
        [{"code": "x", "message": "no"}, b"[DONE]"],
        UpstreamUnavailable,
    ),
    (
        "an error of its own form after output, then DONE",
        [delta(content="x"), {"code": "x", "message": "no"}, b"[DONE]"],
        StreamBroken,
    ),
    ("DashScope's own throttling", [{"code": "Throttling.RateQuota", "message": "no", "request_id": "r"}], RateLimited),
    ("the same after output", [delta(content="x"), delta(ERROR_FINISH, content=THROTTLED)], StreamBroken),
    ("the same in place of a text", [delta(ERROR_FINISH, content=THROTTLED)], RateLimited),
    ("another in place of a text", [delta(ERROR_FINISH, content="no")], UpstreamUnavailable),
    (
        "Venice's prompt that is too long",
        [{"error_type": "context_length_exceeded", "error_message": "This model's maximum context length is 9"}],
        Untranslatable,
    ),
    (
        "FastChat's error",
        [{"text": "max_tokens must be at least 1", "error_code": 50001}, b"[DONE]"],
        UpstreamUnavailable,
    ),
    (
        "MiniMax's empty account",
        [{"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no"}}],
        UpstreamAuth,
    ),
    (
        "MiniMax's limit, with its zero usage",
        [{"choices": [], "usage": {"total_tokens": 0}, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}],
        RateLimited,
    ),
    (
        "MiniMax's good ending",
        [
            delta(content="x"),
            {"object": "chat.completion", "choices": [{"finish_reason": "stop", "message": {"content": "x"}}]},
            {"choices": [], "usage": USAGE, "base_resp": {"status_code": 0, "status_msg": ""}},
        ],
        True,
    ),
    ("an event that says that all is well", [{"code": 200, "message": "ok"}, delta(content="x"), delta("stop")], True),
    ("DONE", [delta(content="x"), delta("stop"), b"[DONE]"], True),
    ("DONE and a blank", [delta(content="x"), delta("stop"), b"[DONE] "], True),
    ("an empty error beside each choice", [delta(content="x") | {"error": {}}, delta("stop") | {"error": ""}], True),
    (
        "an empty error beside usage",
        [delta(content="x"), delta("stop"), {"choices": [], "usage": USAGE, "error": {}}, b"[DONE]"],
        True,
    ),
    ("an empty error alone", [delta(content="x"), {"error": {}}], StreamBroken),
    ("finish without DONE", [delta(content="x"), delta("stop")], True),
    ("finish, usage, no DONE", [delta(content="x"), delta("stop"), {"choices": [], "usage": USAGE}], True),
    ("a finished choice echoed after its end", [delta("stop"), delta(content="")], True),
    ("neither", [delta(content="x")], StreamBroken),
    ("one of two choices finished", [choice(0), choice(1), choice(0, "stop")], StreamBroken),
    ("both finished", [choice(0), choice(1), choice(0, "stop"), choice(1, "length")], True),
    ("an error instead", [{"error": {"code": 429}}], RateLimited),
    ("an error after a chunk that says nothing", [delta(content=""), {"error": {"code": 429}}], RateLimited),
    ("an error after output", [delta(content="x"), {"error": {"code": 429}}], StreamBroken),
    ("an error as vLLM once worded it", [{"object": "error", "message": "no", "code": 400}], UpstreamUnavailable),
    ("a finish that is an error", [delta(content="x"), delta("error")], StreamBroken),
    ("a finish that is no end", [delta(content="x"), delta("abort"), b"[DONE]"], StreamBroken),
    ("not JSON", [b"{"], UnreadableAnswer),
    ("not JSON after output", [delta(content="x"), b'{"choices": [{"ind'], StreamBroken),
    ("not an object", [delta(content="x"), b"7"], StreamBroken),
    ("nested too deep", [delta(content="x"), b'{"a":' + b"[" * 100_000], StreamBroken),
]


@pytest.mark.parametrize(("how", "events", "expected"), ENDS, ids=[how for how, _, _ in ENDS])
def test_ends(how: str, events: list[object], expected: bool | type[BackendError]) -> None:
    result = ends(*events)
    if isinstance(result, list):
        assert expected is True
        assert [chunk.payload for chunk in result] in ([], [b"data: [DONE]\n\n"])
    else:
        assert result is expected


@pytest.mark.parametrize(
    "reason",
    ["abort", "insufficient_system_resource", "network_error", "function_call_filter: MALFORMED_FUNCTION_CALL"],
)
def test_an_answer_that_was_given_up_is_booked_by_the_usage_it_came_with(reason: str) -> None:
    with pytest.raises(UnreadableAnswer, match="gave up") as caught:
        read({**delta(reason), "usage": USAGE})
    assert caught.value.usage == Usage(3, output_tokens=2)


@pytest.mark.parametrize(
    "told",
    [
        {"choices": None, "base_resp": {"status_code": 1027, "status_msg": "output new_sensitive"}},
        {"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content."},
        {"error": {"code": 502, "message": "Provider returned error"}},
    ],
)
def test_an_error_inside_a_200_is_booked_by_the_usage_told_beside_it(told: dict[str, object]) -> None:
    """MiniMax tells what was generated before its filter saw it; that was charged and not booked."""
    body = {**told, "usage": USAGE}
    for ask in (lambda: read(body), lambda: read_answer(json.dumps(body).encode(), backend="b")):
        with pytest.raises(BackendError) as caught:
            ask()
        assert caught.value.usage == Usage(3, output_tokens=2)


@pytest.mark.parametrize("text", ["", "hel"])
def test_openrouter_calls_its_providers_failure_a_stop(text: str) -> None:
    end = {"index": 0, "finish_reason": "stop", "native_finish_reason": "network_error"}
    with pytest.raises(StreamBroken if text else UnreadableAnswer, match="gave up"):
        read(delta(content=text), {"choices": [{**end, "delta": {"content": ""}}]}, b"[DONE]")
    with pytest.raises(UnreadableAnswer, match="gave up"):
        read_answer(json.dumps({"choices": [{**end, "message": {"content": text}}]}).encode(), backend="b")
