"""The SSE parser against a line-by-line reference, with every possible chunk boundary."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.http.sse import EventTooLarge, SseParser


def parse(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.receive(chunk)] + parser.finish()


def reference(stream: bytes) -> list[bytes]:
    """Parses the whole stream at once by the specification, plus our two rules: the end of the stream ends an event,
    and events without data are dropped."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        if not line:
            events.append(b"\n".join(data))
            data = []
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
    return [event for event in events if event]


CASES: list[tuple[bytes, list[bytes]]] = [
    (b"", []),
    (b"data: a\n\n", [b"a"]),
    (b"data:a\n\n", [b"a"]),
    (b"data:  a\n\n", [b" a"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    (b"data: a\n\r\ndata: b\r\n\n", [b"a", b"b"]),
    (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    (b"\xef", []),
    (b": comment\n\ndata: a\n\n", [b"a"]),
    (b"event: x\nid: 7\nretry: 5\ndata: a\n\n", [b"a"]),
    (b"data: a\ndata: b\n\n", [b"a\nb"]),
    (b"data\n\ndata:\n\ndata: \n\ndata: a\n\n", [b"a"]),
    (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
    (b"data: a\n", [b"a"]),
    (b"\n\n\n\ndata: a\n\n\n\n\n", [b"a"]),
    (b"datum: a\n\nDATA: b\n\n data: c\n\n", []),
    ("data: é漢🙂\n\n".encode(), ["é漢🙂".encode()]),
]


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_whole_byte_by_byte_and_split_in_two(stream: bytes, expected: list[bytes]) -> None:
    assert reference(stream) == expected
    assert parse(stream) == expected
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == expected
    for cut in range(len(stream)):
        assert parse(stream[:cut], stream[cut:]) == expected, cut


PIECES = [
    b"data: x",
    b"data:",
    b"data: \xf0\x9f\x99\x82",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b": hi",
    b"event: e",
    b"\xef\xbb\xbf",
    b"",
]


@settings(max_examples=90)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=30).map(b"".join), st.data())
def test_events_do_not_depend_on_chunk_boundaries(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(*chunks) == reference(stream)


def test_an_event_comes_out_with_its_last_byte() -> None:
    for end in (b"\n\n", b"\r\r"):
        parser = SseParser()
        assert parser.receive(b"data: a" + end) == [b"a"]
    parser = SseParser()
    assert parser.receive(b"data: a\r\n\r") == [b"a"]
    assert parser.receive(b"\ndata: b\r\n\r\n") == [b"b"]


def test_comments_are_counted_as_signs_of_life() -> None:
    parser = SseParser()
    assert parser.receive(b": OPENROUTER PROCESSING\n\n: ping\n") == []
    assert parser.comments == 2


ENDLESS: list[tuple[str, bytes]] = [
    ("a line without an end", b"x" * 4096),
    ("a comment without an end", b":" * 4096),
    ("one event of ever more lines", b"data: " + b"x" * 512 + b"\n"),
    ("one event of empty lines", b"data:\n"),
]


@pytest.mark.parametrize(("what", "piece"), ENDLESS)
def test_memory_is_bounded(what: str, piece: bytes) -> None:
    parser = SseParser(max_event_bytes=10_000)

    def feed() -> None:
        for _ in range(10_000):
            parser.receive(piece)

    with pytest.raises(EventTooLarge):
        feed()


def test_a_whole_event_over_the_limit_is_refused_too() -> None:
    with pytest.raises(EventTooLarge):
        SseParser(max_event_bytes=100).receive(b"data: " + b"x" * 200 + b"\n\n")


def test_many_events_do_not_add_up_to_the_limit() -> None:
    parser = SseParser(max_event_bytes=200)
    for _ in range(1000):
        assert parser.receive(b"data: " + b"x" * 50) == []
        assert parser.receive(b"\n\n") == [b"x" * 50]
        assert parser.receive(b"data:\n\n") == []
