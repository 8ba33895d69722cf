"""Splicing: unedited members keep their bytes, and edited ones have the new values."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.formats.json_splice import NotAnObject, find_members, splice

CASES: list[tuple[bytes, dict[str, bytes | None], bytes]] = [
    (b'{"model":"a","n":1.50e0}', {"model": b'"b"'}, b'{"model":"b","n":1.50e0}'),
    (b' {\n "n" : 1e400 ,\t"model" :\r"a" } \n', {"model": b'"b"'}, b' {\n "n" : 1e400 ,\t"model" :\r"b" } \n'),
    (b'{"a":1}', {"b": b"2"}, b'{"a":1,"b":2}'),
    (b'{"a":1 }', {"b": b"2", "a": b"3"}, b'{"a":3,"b":2 }'),
    (b"{}", {"b": b"2"}, b'{"b":2}'),
    (b" { } ", {"b": b"2"}, b' {"b":2 } '),
    (b'{"a":1,"b":2,"c":3}', {"b": None}, b'{"a":1,"c":3}'),
    (b'{"a":1, "b":2}', {"a": None, "c": b"3", "b": b"4"}, b'{"b":4,"c":3}'),
    (b'{"a":1}', {"b": None}, b'{"a":1}'),
    (b'{"mod\\u0065l":"a","x":"\\"model\\":1"}', {"model": b'"b"'}, b'{"mod\\u0065l":"b","x":"\\"model\\":1"}'),
    (b'{"a":{"model":"x"},"model":"y"}', {"model": b'"z"'}, b'{"a":{"model":"x"},"model":"z"}'),
    (b'{"a":12345678901234567890123}', {"b": b"1"}, b'{"a":12345678901234567890123,"b":1}'),
]


@pytest.mark.parametrize(("body", "edits", "expected"), CASES)
def test_table(body: bytes, edits: dict[str, bytes | None], expected: bytes) -> None:
    assert splice(body, edits) == expected


def test_nothing_to_change_returns_the_very_same_bytes() -> None:
    body = b'{ "model" : "a" }'
    assert splice(body, {"model": b'"a"', "gone": None}) is body


BAD = [
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"{",
    b'{"a":1,}',
    b'{"a":NaN}',
    b'{"a":1} x',
    b'{"a":1}{"a":2}',
    b"\xff\xfe",
    b'{"a":' + b"[" * 10_000,
    b'{"model":"a","model":"b"}',
    b'{"model":"a","mod\\u0065l":"b"}',
    b'{"a":1,"a":1}',
    b'{"a":"bb","model":"x","a":1}',
]


@pytest.mark.parametrize("body", BAD)
def test_anything_but_one_object_with_distinct_keys_is_refused(body: bytes) -> None:
    with pytest.raises(NotAnObject):
        splice(body, {"model": b'"b"'})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(
    st.sampled_from(["model", "stream", "a", 'q"', "\\", "é"]) | st.text(max_size=4), VALUES, max_size=6
)


@settings(max_examples=55)
@given(
    OBJECTS,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([None, (",", ":"), (",", ": "), (" , ", ":")]),
    st.dictionaries(st.sampled_from(["model", "a", "new"]), st.none() | VALUES),
)
def test_reads_back_as_edited(
    content: dict[str, object],
    ascii_only: bool,
    indent: int | None,
    separators: tuple[str, str] | None,
    edits: dict[str, object],
) -> None:
    body = json.dumps(content, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()
    changes = {key: None if value is None else json.dumps(value).encode() for key, value in edits.items()}
    expected = content | {key: value for key, value in edits.items() if value is not None}
    for key in (key for key, value in edits.items() if value is None):
        expected.pop(key, None)
    result = splice(body, changes)
    assert json.loads(result) == expected
    assert list(json.loads(result)) == list(expected)


@settings(max_examples=55)
@given(
    st.lists(
        st.sampled_from([b'{"a":', b"1", b",", b'"a":', b'"model":', b'"x"', b"}", b"{", b'\\"', b" ", b'"']),
        max_size=14,
    )
)
def test_members_found_are_the_members_there(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    try:
        members = find_members(body)
    except NotAnObject:
        return
    parsed = json.loads(body)
    assert {key: json.loads(body[m.start : m.end]) for key, m in members.items()} == parsed


NAMES = st.sampled_from(['"a"', '"\\u0061"', '"b"', '"\\\\u0061"', '"\\n"', '"\\\\n"'])


@settings(max_examples=90)
@given(st.lists(st.tuples(NAMES, st.sampled_from(["1", "12", '"a"'])), max_size=4), st.sampled_from(["", " "]))
def test_an_object_is_taken_if_and_only_if_its_names_are_distinct(members: list[tuple[str, str]], blank: str) -> None:
    body = "{" + f",{blank}".join(f"{name}:{blank}{value}" for name, value in members) + "}"
    names = [json.loads(name) for name, _ in members]
    if len(set(names)) < len(names):
        with pytest.raises(NotAnObject):
            find_members(body.encode())
        return
    found = find_members(body.encode())
    assert [(name, body[at.start : at.end]) for name, at in found.items()] == [
        (name, value) for name, (_, value) in zip(names, members, strict=True)
    ]
    assert [body[at.key_start : at.start].rstrip(": ") for at in found.values()] == [name for name, _ in members]


def test_more_members_than_any_api_has_are_refused_before_each_is_looked_at() -> None:
    few = b"{" + b",".join(b'"%d":1' % number for number in range(1000)) + b"}"
    assert len(find_members(few)) == 1000
    with pytest.raises(NotAnObject, match="1,001 members"):
        find_members(few[:-1] + b',"more":1}')


@pytest.mark.parametrize("blank", [b"", b" "])
def test_a_large_body_has_its_members(blank: bytes) -> None:
    long = b'"%b"' % (b"x" * (1 << 15))
    body = b'{"a":%b1,%b"long":%b%b}' % (blank, blank, blank, long)
    tracemalloc.start()
    found = find_members(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < len(long)  # it is not copied, which would cost more than all the rest
    assert [body[at.start : at.end] for at in found.values()] == [b"1", long]
    with pytest.raises(NotAnObject):
        find_members(body[:-1] + b',"a":1}')
