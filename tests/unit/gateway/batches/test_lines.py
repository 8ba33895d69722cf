import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.batches.lines import Check, Line, Lines, LineTooLong, answered, expired, parse_line, tokens_of
from gateway.batches.values import LineProblem, Tokens

CHATS = "/v1/chat/completions"
BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


def written(**changes: Any) -> bytes:
    fields = {"custom_id": "one", "method": "POST", "url": CHATS, "body": BODY} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def cut(data: bytes, places: list[int]) -> list[tuple[int, bytes]]:
    lines, found, start = Lines(most_bytes=1000), list[tuple[int, bytes]](), 0
    for end in [*sorted(places), len(data)]:
        found += lines.feed(data[start:end])
        start = end
    return found + list(lines.end())


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"", b" ", b"{}\r"]), max_size=8),
    st.lists(st.integers(0, 20)),
    st.booleans(),
)
def test_lines_are_the_same_however_the_file_is_cut(texts: list[bytes], places: list[int], has_end: bool) -> None:
    data = b"\n".join(texts) + (b"\n" if has_end else b"")
    expected = [(number, text) for number, text in enumerate(data.split(b"\n"), 1) if text.strip()]
    assert cut(data, [min(place, len(data)) for place in places]) == expected


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert cut(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}", [2]) == [(1, b"{}"), (2, b"\xef\xbb\xbf{}")]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_measure_is_named_before_it_has_come_whole(end: bytes) -> None:
    lines = Lines(most_bytes=10)
    assert list(lines.feed(b"12345\n1234567890")) == [(1, b"12345")]
    with pytest.raises(LineTooLong) as caught:
        list(lines.feed(b"1" + end))
    assert (caught.value.problem.line, caught.value.problem.code) == (2, "line_too_long")


def test_a_line_is_what_it_asks() -> None:
    line = parse_line(3, written(), CHATS)
    assert isinstance(line, Line)
    assert (line.number, line.custom_id, json.loads(line.body)) == (3, "one", BODY)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (b"{", "invalid_json_line", "not valid JSON"),
        (b"\xff", "invalid_json_line", "not valid JSON"),
        (b'{"a":' * 100_000, "invalid_json_line", "not valid JSON"),
        (
            b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":' + b"[" * 100_000,
            "invalid_json_line",
            "",
        ),
        (b"[]", "invalid_line", "a line needs custom_id, method, url and body"),
        (written(custom_id=None), "invalid_line", "custom_id"),
        (written(custom_id=7), "invalid_line", "custom_id"),
        (written(custom_id=""), "missing_required_parameter", "custom_id is empty"),
        (written(body=None), "invalid_line", "body"),
        (written(body={"messages": []}), "invalid_line", "model"),
        (written(body="auto"), "invalid_line", "the body needs a model"),
        (written(method="GET"), "invalid_method", "must be POST, not 'GET'"),
        (written(url="/v1/embeddings"), "invalid_url", "must be the batch's endpoint /v1/chat/completions"),
        (written(body=BODY | {"stream": True}), "stream_not_supported", "leave out stream"),
    ],
)
def test_what_is_no_request_is_said(text: bytes, code: str, says: str) -> None:
    problem = parse_line(3, text, CHATS)
    assert isinstance(problem, LineProblem)
    assert (problem.line, problem.code) == (3, code)
    assert says in problem.message


def test_a_file_is_looked_through_whole() -> None:
    check = Check(CHATS, most_lines=3)
    for number, text in enumerate([written(), written(), b"{", written(custom_id="two"), b"{"], 1):
        check.look(number, text)
    assert [(one.line, one.code) for one in check.end()] == [
        (2, "duplicate_custom_id"),
        (3, "invalid_json_line"),
        (4, "too_many_requests"),
    ]
    assert check.total == 5


def test_an_empty_file_is_no_batch() -> None:
    assert [one.code for one in Check(CHATS, most_lines=3).end()] == ["empty_file"]


def test_twenty_mistakes_are_enough_to_be_told() -> None:
    check = Check(CHATS, most_lines=1000)
    for number in range(1, 100):
        check.look(number, b"{")
    assert [one.line for one in check.end()] == list(range(1, 21))


LINE = Line(7, "mine", b"{}")


@pytest.mark.parametrize("body", [b'{"a": 1.10}', b'{\n  "a":\r\n 1.10}'])
def test_an_answer_is_one_line_with_its_body_as_it_came(body: bytes) -> None:
    result = answered(LINE, 200, "0123", body, cost_pico_usd=5)
    assert result.text.count(b"\n") == 1
    assert result.text.endswith(b"\n")
    assert b"1.10" in result.text
    assert json.loads(result.text) == {
        "id": "batch_req_7",
        "custom_id": "mine",
        "response": {"status_code": 200, "request_id": "0123", "body": {"a": 1.1}},
        "error": None,
    }
    assert (result.line, result.is_error, result.cost_pico_usd) == (7, False, 5)


def test_a_text_with_other_line_ends_is_one_line_to_splitlines_too() -> None:
    """`client.files.content(...).text.splitlines()` is how OpenAI's examples read results."""
    body = {"a": "x\u2028y\u2029z\x85"}
    result = answered(LINE, 200, "0123", json.dumps(body, ensure_ascii=False).encode(), cost_pico_usd=5)
    (line,) = result.text.decode().splitlines()
    assert json.loads(line)["response"]["body"] == body


def test_what_is_no_json_is_told_as_text() -> None:
    result = answered(LINE, 200, "0123", b"\xffhm", cost_pico_usd=None)
    assert json.loads(result.text)["response"]["body"] == "\ufffdhm"


def test_a_refusal_and_a_line_that_was_not_asked_are_errors() -> None:
    refused = answered(LINE, 404, "0123", b'{"error": {"message": "no"}}', cost_pico_usd=None)
    assert refused.is_error
    assert json.loads(refused.text)["response"]["status_code"] == 404
    late = expired(LINE)
    assert late.is_expired
    assert late.is_error
    assert json.loads(late.text)["response"] is None
    assert json.loads(late.text)["error"]["code"] == "batch_expired"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Tokens(10, 4, 5, 3),
        ),
        ({"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}, Tokens(10, 4, 5, 0)),
        ({"prompt_tokens": 10, "total_tokens": 10}, Tokens(10, 0, 0, 0)),
        ({"prompt_tokens": "10", "completion_tokens": -1}, Tokens()),
        (None, Tokens()),
    ],
)
def test_tokens_are_as_the_body_tells_them(usage: dict[str, Any] | None, expected: Tokens) -> None:
    assert tokens_of({"usage": usage}) == expected
