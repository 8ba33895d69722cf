"""Events that only go on with a text: decoded together they say what each says alone."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.formats.openai_events import ChatEvent
from backends.formats.text_runs import BETWEEN, TextRuns
from tests.unit.backends.formats.test_openai_ends import choice

COMPACT = '{"id":"1","choices":[{"index":%d,"delta":{"%s":"%s"},"finish_reason":null}]}'
SPACED = '{"choices": [{"delta": {"role": "assistant", "%s": "%s"}, "index": 0}], "content": "not this"}'
PIECES = ("a", " harvest", "", "é", "🙂", r"\n", r"\"", r"\\", r"\u00e9", r"\ud83d\ude42", '","x":"', "!")
BROKEN = ("\\", r"\ud83d", r"\ude42", r"\u00", '"', "\t")
NAMES = ("content", "reasoning_content", "reasoning")
OTHERS: list[bytes] = [
    b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
    b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}',
    b'{"choices":[{"index":0,"delta":{"content":"a","executed_tools":[{}]}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a","reasoning":"b"}}]}',
    b'{"choices":[{"index":0,"delta":{"x\\"content":"a","content":"a"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"b","content":"a"}}]}',
    b'{"choices":[{"index":0,"delta":{"c\\u006fntent":"a"}}],"content":"a"}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}],"us\\u0061ge":{}}',
    b'{"error":{},"choices":[{"index":0,"delta":{"content":"a"}}],"object":"error"}',
    *(json.dumps(choice(0, finish)).encode() for finish in (None, "stop")),
]


def line(index: int, name: str, text: str) -> bytes:
    return (COMPACT % (index, name, text)).encode()


def spaced(text: str) -> bytes:
    return (SPACED % ("content", text)).encode()


TEXTS = st.sampled_from((*PIECES, *PIECES, *BROKEN))
LINES = st.one_of(
    st.builds(line, st.integers(0, 1), st.sampled_from(("content", *NAMES)), TEXTS),
    st.builds(line, st.just(0), st.just("content"), TEXTS),
    st.builds(spaced, TEXTS),
    st.sampled_from(OTHERS),
)


def alone(lines: list[bytes]) -> list[ChatEvent] | None:
    try:
        return [msgspec.json.decode(line, type=ChatEvent) for line in lines]
    except msgspec.DecodeError:
        return None


def text_of(events: list[ChatEvent]) -> list[tuple[str, str, str]]:
    """What the choices said in all, by index."""
    told: dict[int, list[str]] = {}
    for event in events:
        for one in event.choices or ():
            if one.delta is not None:
                texts = [getattr(one.delta, name) for name in NAMES]
                so_far = told.setdefault(one.index, ["", "", ""])
                told[one.index] = [a + (b if isinstance(b, str) else "") for a, b in zip(so_far, texts, strict=True)]
    return [(a, b, c) for _, (a, b, c) in sorted(told.items())]


def characters(events: list[ChatEvent]) -> tuple[bool, int]:
    outputs = [one.output() for event in events for one in event.choices or ()]
    return any(found for found, _ in outputs), sum(count for _, count in outputs)


@settings(max_examples=120)
@given(st.lists(LINES, max_size=16), st.data())
def test_together_they_say_what_each_says_alone(lines: list[bytes], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(lines) - 1)), max_size=3)))
    runs = TextRuns()
    for begin, end in pairwise([0, *cuts, len(lines)]):
        group = lines[begin:end]
        expected = alone(group)
        if expected is None:
            with pytest.raises(msgspec.DecodeError):
                runs.decode(group)
            continue
        events, told = runs.decode(group)
        assert BETWEEN.join(told) == BETWEEN.join(group)
        assert len(events) == len(told)
        assert characters(list(events)) == characters(expected)
        assert text_of(list(events)) == text_of(expected)


@pytest.mark.parametrize("other", OTHERS)
def test_events_that_tell_more_than_a_text_keep_it(other: bytes) -> None:
    events, told = TextRuns().decode([other] * 8)
    expected = alone([other] * 8) or []
    assert (characters(list(events)), text_of(list(events))) == (characters(expected), text_of(expected))
    special = [
        [event for event in found if event.usage is not None or event.is_failure] for found in (events, expected)
    ]
    assert special[0] == special[1]
    assert BETWEEN.join(told) == BETWEEN.join([other] * 8)


@pytest.mark.parametrize(
    "halves", [(r"\ud83d", r"\ude42"), ("\\", "n"), ("\\", '"'), (r"\u00", "e9"), ("a", '","b":"')]
)
def test_pieces_are_whole(halves: tuple[str, str]) -> None:
    lines = [line(0, "content", text) for text in ("a", "b", "c", "d", "e", *halves)]
    expected = alone(lines)
    if expected is None:
        with pytest.raises(msgspec.DecodeError):
            TextRuns().decode(lines)
    else:
        events, _ = TextRuns().decode(lines)
        assert text_of(list(events)) == text_of(expected)


def test_events_that_go_on_are_one() -> None:
    lines = [(COMPACT % (0, "content", text)).encode() for text in ("", "The", " har", r"vest\n", "é")]
    end = json.dumps(choice(0, "stop")).encode()
    runs = TextRuns()
    events, told = runs.decode([*lines, end])
    assert told == [*lines[:2], BETWEEN.join(lines[2:]), end]
    assert characters(list(events)) == characters(alone([*lines, end]) or [])
    events, told = runs.decode(lines[1:] * 2)
    assert (characters(list(events)), told) == ((True, 26), [BETWEEN.join(lines[1:] * 2)])


def test_a_stream_whose_events_all_differ_is_left_alone_soon() -> None:
    runs = TextRuns()
    lines = [b'{"n":%d,"choices":[{"index":0,"delta":{"content":"a"}}]}' % number for number in range(28)]
    assert all(runs.decode(group)[1] == group for group in (lines[:7], lines[7:14], lines[14:21], lines[21:]))
    alike = [lines[0]] * 9
    assert runs.decode(alike)[1] == alike


def test_large_events_are_neither_copied_nor_kept() -> None:
    runs = TextRuns()
    small = [line(0, "content", "a")] * 6
    large = [line(0, "content", "a" * (1 << 18))] * 6
    for lines in (large, small, large):
        events, told = runs.decode(lines)
        assert (len(events) == len(told) == 6) == (lines is large)
        assert characters(list(events)) == characters(alone(lines) or [])
