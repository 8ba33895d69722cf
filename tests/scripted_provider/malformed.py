"""Forty streams that are not quite server-sent events in OpenAI's format, each with the status in which it must end.

`completed`: all chunks arrived, and the end is certain. `broken`: some arrived, but the end is uncertain. `refused`:
nothing arrived that counts as an answer, so another backend may be tried.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from backends.http.sse import MAX_EVENT_BYTES

End = Literal["completed", "broken", "refused"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One stream. `text` is what a client reads; `has_usage`: whether a credible usage arrived."""

    name: str
    pieces: tuple[bytes, ...]
    end: End
    text: str = ""
    has_usage: bool = False
    is_usage_malformed: bool = False


def _json(document: object) -> bytes:
    return msgspec.json.encode(document)


def _delta(text: str | None = None, finish: str | None = None) -> bytes:
    said = {} if text is None else {"content": text}
    return _json({"id": "x", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]})


def _usage(prompt: bytes = b"3", completion: bytes = b"2") -> bytes:
    return b'{"id":"x","choices":[],"usage":{"prompt_tokens":' + prompt + b',"completion_tokens":' + completion + b"}}"


def _event(data: bytes, newline: bytes = b"\n") -> bytes:
    return b"data: " + data + newline + newline


HELLO, STOP, DONE = _delta("héllo 🙂"), _delta(finish="stop"), b"[DONE]"
GOOD = (HELLO, STOP, _usage(), DONE)
SAID = "héllo 🙂"


def _stream(*datas: bytes, newline: bytes = b"\n") -> bytes:
    return b"".join(_event(data, newline) for data in datas)


def _split(stream: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(stream[start : start + size] for start in range(0, len(stream), size))


def variants() -> Iterator[Variant]:
    yield from _line_endings()
    yield from _sizes()
    yield from _ends()
    yield from _usages()
    yield from _contents()


def _line_endings() -> Iterator[Variant]:
    good = _stream(*GOOD)
    for name, pieces in {
        "CRLF": (_stream(*GOOD, newline=b"\r\n"),),
        "CR": (_stream(*GOOD, newline=b"\r"),),
        "mixed line ends": (_event(HELLO, b"\r\n") + _event(STOP, b"\r") + _event(_usage()) + _event(DONE, b"\r\n"),),
        "byte order mark": (b"\xef\xbb\xbf" + good,),
        "byte order mark in two writes": (b"\xef", b"\xbb\xbf" + good),
        "CRLF cut between CR and LF": _split(_stream(*GOOD, newline=b"\r\n"), 1),
        "UTF-8 cut inside a character": _split(good, 1),
        "no blank after the colon": (good.replace(b"data: ", b"data:"),),
        "no newline at the very end": (good[:-2],),
        "one newline at the very end": (good[:-1],),
        "blank lines everywhere": (b"\n\n\n" + good.replace(b"\n\n", b"\n\n\n\n"),),
        "comments and heartbeats": (b": hi\n\n" + good.replace(b"\n\n", b"\n: ping\n\n: pong\n\n"),),
        "event, id and retry fields": (good.replace(b"data:", b"event: message\nid: 1\nretry: 5\ndata:"),),
        "unknown fields": (good.replace(b"data:", b"x-y: z\nnothing\ndata:"),),
        "JSON over several data lines": (good.replace(b'"choices"', b'\ndata: "choices"'),),
    }.items():
        yield Variant(name, pieces, "completed", SAID, has_usage=True)


def _sizes() -> Iterator[Variant]:
    long = "x" * 40_000_000
    yield Variant("a 40 MB line", (_stream(_delta(long), STOP, _usage(), DONE),), "completed", long, has_usage=True)
    endless = tuple([b"x" * (1024 * 1024)] * (MAX_EVENT_BYTES // (1024 * 1024) + 1))
    yield Variant("a line that never ends, first", (b"data: ", *endless), "refused")
    yield Variant("a line that never ends, later", (_event(HELLO), b"data: ", *endless), "broken", SAID)
    yield Variant(
        "a million empty data", (b"data: \n\n" * 1_000_000 + _stream(*GOOD),), "completed", SAID, has_usage=True
    )
    yield Variant("only empty data", (b"data:\n\n" * 1000,), "refused")
    yield Variant("an event of too many lines", (_event(HELLO), *[b"data:\n" * 50_000] * 22), "broken", SAID)


def _ends() -> Iterator[Variant]:
    yield Variant("nothing", (), "refused")
    yield Variant("only DONE", (_event(DONE),), "refused")
    yield Variant("two DONE", (_stream(*GOOD, DONE),), "completed", SAID, has_usage=True)
    yield Variant(
        "bytes after DONE", (_stream(*GOOD) + b"data: {garbage\n\n\x00\xff",), "completed", SAID, has_usage=True
    )
    yield Variant("no DONE", (_stream(HELLO, STOP, _usage()),), "completed", SAID, has_usage=True)
    yield Variant("no finish, no DONE", (_stream(HELLO),), "broken", SAID)
    yield Variant("cut inside an event", (_stream(HELLO) + _event(_delta("more"))[:-12],), "broken", SAID)
    yield Variant("an error event at once", (_event(b'{"error":{"message":"no","code":503}}'),), "refused")
    yield Variant("an error event later", (_stream(HELLO, b'{"error":{"message":"no"}}', DONE),), "broken", SAID)


def _usages() -> Iterator[Variant]:
    yield Variant("no usage", (_stream(HELLO, STOP, DONE),), "completed", SAID)
    yield Variant("usage twice", (_stream(HELLO, STOP, _usage(), _usage(), DONE),), "completed", SAID, has_usage=True)
    for name, bad in {
        "NaN": b"NaN",
        "negative": b"-2",
        "2^63": b"9223372036854775808",
        "a string": b'"2"',
        "1e400": b"1e400",
    }.items():
        stream = _stream(HELLO, STOP, _usage(completion=bad), DONE)
        yield Variant(f"usage: {name}", (stream,), "completed", SAID, is_usage_malformed=True)


def _contents() -> Iterator[Variant]:
    yield Variant("HTML", (b"<html><body>Bad gateway</body></html>",), "refused")
    yield Variant("not JSON, later", (_stream(HELLO, b"{'choices': []}", DONE),), "broken", SAID)
    yield Variant("an array, later", (_stream(HELLO, b"[1]", DONE),), "broken", SAID)
    yield Variant(
        "NUL and invalid UTF-8 outside events", (b"\x00\xff\n" + _stream(*GOOD),), "completed", SAID, has_usage=True
    )
    yield Variant(
        "choices of the wrong type", (_stream(HELLO, b'{"choices":7}', *GOOD[1:]),), "completed", SAID, has_usage=True
    )
    yield Variant("unknown members", (_stream(HELLO, b'{"zzz":[{}]}', *GOOD[1:]),), "completed", SAID, has_usage=True)
