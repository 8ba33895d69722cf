"""Errors of servers that follow OpenAI's format except for errors: callers still see the message."""

import json
from collections.abc import Callable

import pytest

from backends.endpoints.messages_events import messages_error_from
from backends.formats import anthropic, gemini
from backends.formats.error_bodies import in_openai_shape

Error = dict[str, object]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long"),
        ({"error": "model not found"}, "model not found"),
        ({"error": {"detail": "no such field"}}, "no such field"),
        ({"message": {"detail": [{"loc": ["body", "top_p"], "msg": "too large"}]}}, "body.top_p: too large"),
        ({"detail": "not allowed"}, "not allowed"),
        ({"detail": [{"loc": ["body", "n"], "msg": "a"}, {"msg": "b"}]}, "body.n: a; b"),
        (
            {"errors": [{"message": "AiError: Bad input", "code": 5006}], "success": False, "messages": []},
            "AiError: Bad input",
        ),
    ],
)
def test_the_message_is_found(body: object, message: str) -> None:
    error = json.loads(in_openai_shape(json.dumps(body).encode()))["error"]
    assert (error["message"], error["type"]) == (message, "invalid_request_error")


def test_googles_list_of_one_error_is_read() -> None:
    body = [{"error": {"code": 400, "message": 'Unknown name "x": Cannot find field.', "status": "INVALID_ARGUMENT"}}]
    for indent in (None, 2):
        error = json.loads(in_openai_shape(json.dumps(body, indent=indent).encode()))["error"]
        assert (error["message"], error["code"]) == ('Unknown name "x": Cannot find field.', "invalid_argument")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"Internal Server Error: 1 validation error for CreateChatCompletion\nstream\n  none is not an", None),
        (b"Failed to deserialize the JSON body into the target type: input: missing field at line 1 column 9", None),
        (b"This model's maximum context length is 10 tokens.", "context_length_exceeded"),
    ],
)
def test_a_plain_text_is_a_message(body: bytes, code: str | None) -> None:
    error = json.loads(in_openai_shape(body + b"\n"))["error"]
    assert (body.decode() in error["message"], error["code"]) == (True, code)


@pytest.mark.parametrize("body", [b"", b" <html>502</html>", b'{"cut', b"long" * 2000])
def test_what_is_no_message_stays_as_it_is(body: bytes) -> None:
    assert in_openai_shape(body) == body


def test_param_and_code_are_kept() -> None:
    body = {"object": "error", "message": "too long", "param": "messages", "code": "context_length_exceeded"}
    error = json.loads(in_openai_shape(json.dumps(body).encode()))["error"]
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


VLLM: Error = {"object": "error", "message": "This model's maximum context length is 10 tokens.", "code": 400}
CLAUDE: Error = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
GEMINI: Error = {
    "error": {"code": 400, "message": "The input token count (9) exceeds 8.", "status": "INVALID_ARGUMENT"}
}


@pytest.mark.parametrize(
    ("translate", "body"),
    [
        (in_openai_shape, VLLM),
        (in_openai_shape, {"error": VLLM}),
        (in_openai_shape, [GEMINI]),
        (anthropic.openai_error, CLAUDE),
        (gemini.openai_error, GEMINI),
    ],
)
def test_a_prompt_that_is_too_long_is_told_in_the_words_that_agents_look_for(
    translate: Callable[[bytes], bytes], body: object
) -> None:
    said = translate(json.dumps(body).encode())
    error = json.loads(said)["error"]
    assert (error["code"], "prompt is too long" in error["message"]) == ("context_length_exceeded", True)
    message = json.loads(messages_error_from(said, 400, ""))["error"]["message"]
    assert message.lower().count("prompt is too long") == 1


def test_the_other_members_of_an_error_are_kept() -> None:
    error = {"message": "maximum context length is 9", "type": "BadRequestError", "param": "messages", "code": 400}
    told = {"message": f"prompt is too long: {error['message']}", "code": "context_length_exceeded"}
    assert json.loads(in_openai_shape(json.dumps({"error": error}).encode())) == {"error": error | told}


@pytest.mark.parametrize(
    "error", [b'{"message":"x" ,"code":400}', b'{"message": "x","code":"context_length_exceeded"}']
)
def test_an_error_in_openais_shape_keeps_its_bytes(error: bytes) -> None:
    assert in_openai_shape(b'{ "error":%b}' % error) == b'{ "error":%b}' % error


def test_an_answer_that_has_no_room_is_told_in_the_numbers_that_agents_read() -> None:
    said = (
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 65536 "
        "tokens and your request has 57546 input tokens (8192 > 65536 - 57546). (parameter=max_tokens, value=8192)"
    )
    error = json.loads(messages_error_from(json.dumps({"error": {"message": said}}).encode(), 400, ""))["error"]
    assert error["message"].startswith("input length and `max_tokens` exceed context limit: 57546 + 8192 > 65536, ")


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message":"as it is" , "type":"x"}}',
        b"<html>",
        b"",
        b"[1]",
        b'[{"error": 1}]',
        b'[{"error": {"message": "a"}}, {"error": {"message": "b"}}]',
        b'{"detail": 7}',
        b'{"error": {"error": {"error": {"error": {"message": "too deep"}}}}}',
    ],
)
def test_what_is_openais_or_says_nothing_stays_as_it_is(body: bytes) -> None:
    assert in_openai_shape(body) == body
