"""A body may be long, but may not have millions of values; the content of strings does not count."""

import pytest

from gateway.errors import InvalidRequest
from gateway.request.many_values import MOST, require_bearable
from gateway.request.view import parse_request

OBJECTS, LISTS = b"{},", b"[],"


def list_of(item: bytes, times: int) -> bytes:
    return b'{"input":[' + item * times + b"0]}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        list_of(OBJECTS, MOST.containers - 2),
        list_of(b"1,", MOST.values - 1),
        b'{"input":"' + b"{}[],:" * MOST.values + b'"}',
        b'{"input":"' + b'\\"{\\"' * MOST.containers + b'"}',
        b'{"input":["' + b"\\\\" * 9 + b'","' + b"{[" * MOST.containers + b'"]}',
    ],
    ids=["empty", "objects", "numbers", "marks in a string", "escaped quotes", "a backslash before a quote that ends"],
)
def test_what_is_taken(body: bytes) -> None:
    require_bearable(body)


@pytest.mark.parametrize(
    "body",
    [
        list_of(OBJECTS, MOST.containers),
        list_of(LISTS, MOST.containers),
        list_of(OBJECTS + LISTS, MOST.containers // 2),
        list_of(b"1,", 2 * MOST.values),
        list_of(b'"",', 2 * MOST.values),
        b'{"input":{' + b'"a":0,' * MOST.names + b'"":0}}',
        b'{"a":"\\\\","input":[' + OBJECTS * MOST.containers + b'0],"b":"\\""}',
        b'{"a":"\\"","input":[' + OBJECTS * MOST.containers + b"0]}",
    ],
    ids=["objects", "lists", "both", "numbers", "strings", "names", "between strings", "behind an escaped quote"],
)
def test_what_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="too many values") as caught:
        require_bearable(body)
    assert caught.value.code == "too_many_values"


def test_every_body_is_counted_before_it_is_read() -> None:
    items = b"{}," * MOST.containers
    with pytest.raises(InvalidRequest, match="too many values"):
        parse_request("responses", b'{"model":"auto","input":[' + items + b"{}]}")
