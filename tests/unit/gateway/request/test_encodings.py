"""Error messages for unreadable bodies, by their kind."""

import sys

import pytest

from gateway.errors import InvalidRequest
from gateway.request.encodings import without_byte_order_mark
from gateway.request.view import parse_request

TEXT = '{"model":"auto","messages":[{"role":"user","content":"hi"}]}'


def saying(content: str) -> bytes:
    return TEXT.replace("hi", content).encode()


def refusal(body: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        parse_request("chat.completions", body)
    assert caught.value.code == "invalid_json"
    return caught.value.message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "The body is empty. Send a JSON object."),
        (b" \r\n", "The body is empty. Send a JSON object."),
        (TEXT.encode("utf-16"), "The body is UTF-16 text. Send JSON in UTF-8."),
        (TEXT.encode("utf-16-le"), "The body is UTF-16 text. Send JSON in UTF-8."),
        (TEXT.encode("utf-16-be"), "The body is UTF-16 text. Send JSON in UTF-8."),
        (TEXT.encode("utf-32"), "The body is UTF-32 text. Send JSON in UTF-8."),
        (TEXT.encode("utf-32-le"), "The body is UTF-32 text. Send JSON in UTF-8."),
        (TEXT.encode("utf-32-be"), "The body is UTF-32 text. Send JSON in UTF-8."),
        (TEXT.replace("hi", "ä").encode("latin-1"), "The body is not UTF-8 text"),
        (saying(r"\ud83d"), r"\ud83d is half of a character; send its other half too, or neither."),
        (saying(r"x\uD83D and more"), r"\uD83D is half of a character"),
        (saying(r"\ud83d\u0041"), r"\ud83d is half of a character"),
        (saying(r"\ud83d\ud83d\ude00"), r"\ud83d is half of a character"),
        (saying(r"\ud83d\ude00\ude01"), r"\ude01 is half of a character"),
        (saying(r"\\\udc00"), r"\udc00 is half of a character"),
        (saying(r"\ud83d\ude00 \\ud83d") + b"}", "trailing characters"),
        (saying(r"\\ud83d")[:-4], "truncated"),
        (saying(r"\ud83d\ude00")[:-6], "truncated"),
        pytest.param(
            TEXT[:-1].encode() + b',"tools":[' + b"[" * 90_000,
            "nested too deeply",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 14),
                reason="Python 3.14 nests as deep as its stack reaches and reads this; 3.11 to 3.13 run it",
            ),
        ),
    ],
)
def test_what_it_is_and_what_to_send(body: bytes, says: str) -> None:
    assert says in refusal(body)


def test_a_whole_character_in_two_halves_is_no_fault() -> None:
    assert parse_request("chat.completions", saying(r"\ud83d\ude00")).conversation.last_user == "\U0001f600"


def test_only_a_mark_of_utf_8_is_taken_away() -> None:
    assert without_byte_order_mark(TEXT.encode("utf-8-sig")) == TEXT.encode()
    for encoding in ("utf-8", "utf-16", "utf-32"):
        assert without_byte_order_mark(TEXT.encode(encoding)) == TEXT.encode(encoding)
