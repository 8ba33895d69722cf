"""Parsers against what nobody should send: they answer with a value or with their one error, whatever comes.

`BREAKEVEN_FUZZ=50000` tries that many inputs each instead of the few hundred of an ordinary run.
"""

import os
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.formats.openai import OpenAIStreamReader
from backends.formats.usage_wire import MalformedUsage, parse_openai_usage
from backends.protocol import Chunk, Operation
from backends.usage import Usage
from gateway.errors import ConfigurationError, InvalidRequest
from gateway.request.view import RequestView, parse_request
from gateway.routing.rules import RulesDocument
from gateway.routing.rules_text import parse_rules
from tests.read_stream import read_stream

pytestmark = pytest.mark.faults
TRIES = settings(
    max_examples=int(os.environ.get("BREAKEVEN_FUZZ", "135")),
    derandomize="BREAKEVEN_FUZZ" not in os.environ,
)
NUMBERS = st.sampled_from(
    [b"0", b"-1", b"2", b"1.5", b"1e400", b"-0", b"9223372036854775808", b"NaN", b"true", b"null", b'"3"', b"[]", b"{}"]
)
WORDS = [
    b'"choices"', b'"delta"', b'"content"', b'"usage"', b'"prompt_tokens"', b'"completion_tokens"', b'"finish_reason"',
    b'"index"', b'"error"', b'"message"', b'"stop"', b'"\\ud800"', b'"\\u0000"', b'"role"', b'"tool_calls"', b'"x"',
]  # fmt: skip
JSON = st.recursive(
    NUMBERS | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b",".join(items) + b"]")
        | st.lists(st.tuples(st.sampled_from(WORDS), inner), max_size=4).map(
            lambda pairs: b"{" + b",".join(name + b":" + value for name, value in pairs) + b"}"
        )
    ),
    max_leaves=12,
)
FRAMES = st.sampled_from(
    [b"data: ", b"data:", b"\n\n", b"\r\n\r\n", b"\r", b"\n", b": ping\n", b"event: x\n", b"[DONE]"]
)
STREAMS = st.lists(
    FRAMES | JSON | st.binary(max_size=4) | JSON.map(lambda event: b"data: " + event + b"\n\n"), max_size=14
).map(b"".join)


def read(pieces: list[bytes]) -> tuple[list[Chunk], str]:
    return read_stream(OpenAIStreamReader("fuzz", wants_usage_chunk=True), pieces)


@TRIES
@given(STREAMS, st.data())
def test_a_stream_means_the_same_however_it_is_cut(stream: bytes, data: st.DataObject) -> None:
    whole, ending = read([stream])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert read(pieces) == (whole, ending)
    for chunk in whole:
        assert chunk.usage is None or 0 <= chunk.usage.output_tokens <= 10**9


BODY = (
    b'{"model":"auto","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":5,"n":1,'
    b'"stream_options":{"include_usage":true},"tools":[{}],"response_format":{"type":"text"}}'
)
OPERATIONS: list[Operation] = ["chat.completions", "completions", "embeddings", "responses"]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A valid body, pieces of which were replaced."""
    body = BODY
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 30)))
        body = body[:start] + draw(JSON | st.binary(max_size=3)) + body[end:]
    return body


@TRIES
@given(bodies() | JSON | st.binary(max_size=40), st.sampled_from(OPERATIONS))
def test_a_body_is_understood_or_refused_by_name(body: bytes, operation: Operation) -> None:
    try:
        view: RequestView | str = parse_request(operation, body)
    except InvalidRequest as refused:
        view = refused.message
    if isinstance(view, str):
        assert view.endswith(".")
        return
    assert view.input_tokens >= 0
    assert view.choices >= 1


@TRIES
@given(JSON)
def test_a_usage_is_believed_whole_or_not_at_all(wire: bytes) -> None:
    try:
        document = msgspec.json.decode(wire)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    try:
        usage = parse_openai_usage(document)
    except MalformedUsage:
        return
    assert isinstance(usage, Usage)
    assert 0 <= usage.cached_input_tokens <= usage.input_tokens
    assert 0 <= usage.reasoning_tokens <= usage.output_tokens


RULES = """version: 1
models:
  small: {backend: local, upstream_model: s, context_window: 100, supports: [streaming]}
rules:
  - name: easy
    when: {difficulty: {at_most: 0.4}, tags: [a, b]}
    choose: {from: [small], by: expected_cost, min_quality: 0.5}
  - name: rest
    choose: {from: any}
"""
YAML_PIECES = st.sampled_from(
    ["*a", "&a ", "!!python/object/apply:os.system ['x']", "<<: *a", "\t", "- ", ": ", "{", "}", "[", "]", "|\n", "'",
     '"', "\x00", "\ud800", "1e400", ".nan", "0x7f", "1:30", "2026-01-01", "null", "~", "%TAG", "---\n", "é", "#"]
)  # fmt: skip


@st.composite
def rules_files(draw: st.DrawFn) -> str:
    text = RULES
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + draw(YAML_PIECES | st.text(max_size=4)) + text[end:]
    return text


@TRIES
@given(rules_files() | st.text(max_size=60))
def test_a_rules_file_is_valid_or_refused_with_a_sentence(text: str) -> None:
    try:
        found: RulesDocument | str = parse_rules(text, known_models=frozenset({"small"}))
    except ConfigurationError as refused:
        found = str(refused)
    if isinstance(found, str):
        assert "rules.yaml" in found
    else:
        assert found.rules[-1].when is None
