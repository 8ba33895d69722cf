"""Errors in Google's format."""

import json

import pytest

from backends.endpoints.content_errors import content_error, content_error_from


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (599, "INTERNAL"),
    ],
)
def test_the_word_follows_the_status(status: int, word: str) -> None:
    assert json.loads(content_error(status, "no")) == {"error": {"code": status, "message": "no", "status": word}}


def test_what_else_is_known_stands_in_the_details() -> None:
    error = json.loads(content_error(429, "no", code="a_b", field="f", retry_seconds=1.2, request_id="r"))["error"]
    assert error["details"] == [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "A_B", "domain": "breakeven"},
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "f", "description": "no"}],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"},
        {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "r"},
    ]


def test_googles_own_words_stay_and_openais_are_translated() -> None:
    own = b'{"error":{"code":400,"message":"x","status":"INVALID_ARGUMENT"} }'
    assert content_error_from(own, 400, "otherwise") == own
    openai = b'{"error":{"message":"x","code":null,"param":"n","type":"t"}}'
    assert json.loads(content_error_from(openai, 400, "otherwise"))["error"]["message"] == "x"
    assert json.loads(content_error_from(b"<html>", 502, "otherwise"))["error"] == {
        "code": 502,
        "message": "otherwise",
        "status": "UNAVAILABLE",
    }
