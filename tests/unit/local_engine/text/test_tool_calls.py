"""Tool calls found in text, whole and byte by byte."""

import json
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel

from local_engine.server.openai_answers import ToolSplit, whole_calls
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_calls import (
    CallArguments,
    CallBegins,
    ToolCallParser,
    parse_function,
)
from local_engine.text.tool_formats import FENCED
from local_engine.text.tool_marks import (
    CLOSES,
    DEEPSEEK,
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_NAME,
    MARKS,
)

CALL = '{"name": "f", "arguments": {"x": 1}}'
BARE_FUNCTION = "<function=f>\n<parameter=x>\n1\n</parameter>\n</function>"


class Told(NamedTuple):
    """A call assembled from its pieces."""

    name: str
    arguments: str
    has_short_id: bool = False


PARSED = Told("f", '{"x": 1}')
SHORT = Told("f", '{"x": 1}', has_short_id=True)


def parted(parser: ToolCallParser, *texts: str) -> tuple[str, list[Told]]:
    """An answer's text and calls, assembled from their pieces."""
    plain, calls = "", list[Told]()
    for piece in (*(piece for text in texts for piece in parser.push(text)), *parser.finish()):
        match piece:
            case str():
                plain += piece
            case CallBegins(name, has_short_id):
                calls.append(Told(name, "", has_short_id))
            case CallArguments(text):
                calls[-1] = calls[-1]._replace(arguments=calls[-1].arguments + text)
    return plain, calls


@pytest.mark.parametrize(
    ("text", "plain", "calls"),
    [
        ("just text", "just text", []),
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [PARSED]),
        (f"before <tool_call>{CALL}</tool_call> after", "before  after", [PARSED]),
        (f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", "", [PARSED, PARSED]),
        ('{"name": "f", "parameters": {"x": 1}}', "", [PARSED]),
        ('{"answer": 42}', '{"answer": 42}', []),
        ('{"name": "Bob", "age": 42}', '{"name": "Bob", "age": 42}', []),
        (f'{CALL}; {{"name": "Bob"}}', '; {"name": "Bob"}', [PARSED]),
        ('{"name": "Bob"}; and so on', '{"name": "Bob"}; and so on', []),
        ("<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", []),
        (f"<tool_call>{CALL}", "", [PARSED]),
        (f"<tool_call>{CALL}\n</tool_", "", [PARSED]),
        (f"<tool_call>{CALL}\n</p>", "\n</p>", [PARSED]),
        (f"<tool_call>{CALL[:-4]}", "", [Told("f", '{"x":')]),
        (f"<tool_call>{CALL[:-8]}", f"<tool_call>{CALL[:-8]}", []),
        ('<tool_call>{"name": "g"', '<tool_call>{"name": "g"', []),
        (f"\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>\n", "", [PARSED, PARSED]),
        (
            r"""<tool_call>{"name": "f", "arguments": {"a": "}</tool_call>\\\"{"}}</tool_call>!""",
            "!",
            [Told("f", r"""{"a": "}</tool_call>\\\"{"}""")],
        ),
        ("""<tool_call>{"name": "f", "arguments": {'x': 1}}</tool_call>""",) * 2 + ([],),
        (
            """<tool_call>{"name": "f", "arguments": {"x": 'a'}}</tool_call>""",
            """'a'}}</tool_call>""",
            [Told("f", '{"x": ')],
        ),
        ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', "", [PARSED]),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [Told("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": ""}</tool_call>', "", [Told("f", "{}")]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [Told("f", "{}")]),
        (f"<tool_call>{CALL}{CALL}</tool_call>", "", [PARSED, PARSED]),
        ('{"a": 1} <tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', '{"a": 1} ', [PARSED]),
        ('<tool_call>{"name": 1} <tool_call>{"name": "g"}', '<tool_call>{"name": 1} ', [Told("g", "{}")]),
        (r'<tool_call>{"arguments": {"x": "\ud83d"}, "name": "f"}', "", [Told("f", r'{"x": "\ud83d"}')]),
        (r'<tool_call>{"name": "g\ud83d", "arguments": "\ud83d"}', "", [Told(r"g\ud83d", r"\ud83d")]),
        ("a < b and <tool", "a < b and <tool", []),
        ("", "", []),
        (f"[TOOL_CALLS] [{CALL}, {CALL}]", "", [SHORT, SHORT]),
        (f"I look. [TOOL_CALLS][{CALL}]", "I look. ", [SHORT]),
        ('[TOOL_CALLS]f[ARGS]{"x": 1}', "", [SHORT]),
        ('[TOOL_CALLS]f[CALL_ID]a1[ARGS]{"x": 1}[TOOL_CALLS]f[ARGS]{"x": 1}', "", [SHORT, SHORT]),
        ("[TOOL_CALLS]f[ARGS]{", "[TOOL_CALLS]f[ARGS]{", []),
        (f"[TOOL_CALLS][{CALL}, 7]", ", 7]", [SHORT]),
        (f"[TOOL_CALLS][{CALL}]\nSo.", "\nSo.", [SHORT]),
        ("[TOOL_CALLS][7, 8]", "[TOOL_CALLS][7, 8]", []),
        ("[TOOL_CALLS]two words", "[TOOL_CALLS]two words", []),
        ('[TOOL_CALLS]g[ARGS]{"x": 1}', "", [Told("g", '{"x": 1}', has_short_id=True)]),
        (f'[TOOL_CALLS] [{CALL[:-1]}, "id": "abcdefghi"}}, {CALL}]', "", [SHORT, SHORT]),
        ("a list: [TOOL", "a list: [TOOL", []),
        (f"{CALL}; {CALL}", "", [PARSED, PARSED]),
        (f"{CALL}\n", "", [PARSED]),
        (f"{CALL}; and so on", "; and so on", [PARSED]),
        (f"\n```json\n{CALL}\n```", "", [PARSED]),
        (f"```\n{CALL}\n{CALL}\n```\nSo.", "\nSo.", [PARSED, PARSED]),
        (f"{CALL}\n```python\n1", "\n```python\n1", [PARSED]),
        ('```json\n{"x": 1}\n```', '```json\n{"x": 1}\n```', []),
        ('```json\n{"name": "Bob"}\n```', '```json\n{"name": "Bob"}\n```', []),
        ("```json", "```json", []),
        ("```javascript\n{", "```javascript\n{", []),
        (f'{CALL}; {{"answer": 42}}', '; {"answer": 42}', [PARSED]),
        (f"<|python_tag|>{CALL}", "", [PARSED]),
        (f"I look. <|python_tag|>{CALL};{CALL}", "I look. ", [PARSED, PARSED]),
        ("I compute. <|python_tag|>print(1)", "I compute. print(1)", []),
        (f"<|tool_call|>[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        (f"I look. <|tool_call|>[{CALL}]<|/tool_call|>", "I look. ", [PARSED]),
        ("<|tool_call|>[1]", "<|tool_call|>[1]", []),
        (f"<|tool_call|>[{CALL}", "", [PARSED]),
        (f"<|tool_call|>[{CALL} ] So [1].", " So [1].", [PARSED]),
        (f"functools[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        ("It uses functools[0] here.", "It uses functools[0] here.", []),
        (f"<tool_call>[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        (f"<tool_call>[{CALL}]</tool_call>", "", [PARSED]),
        ("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>", "", [PARSED]),
        ("<tool_call><function=f></function></tool_call>", "", [Told("f", "{}")]),
        ("<tool_call><function f></tool_call>", "<tool_call><function f></tool_call>", []),
        (f"I look.\n\n{BARE_FUNCTION}\n</tool_call>\n", "I look.\n\n", [PARSED]),
        (f"{BARE_FUNCTION}\n{BARE_FUNCTION}\n<tool_call>{CALL}</tool_call>", "", [PARSED] * 3),
        (f"{BARE_FUNCTION}\n<function=g></function>So.", "\n<function=g></function>So.", [PARSED]),
        (BARE_FUNCTION[:-24], "", [PARSED]),
        ("<function=f", "<function=f", []),
        ("a <function=g>\n<parameter=x>", "a <function=g>\n<parameter=x>", []),
        ('<function=f>{"x": 1}</function>', '<function=f>{"x": 1}</function>', []),
        (f"<function= {BARE_FUNCTION}", "<function= ", [PARSED]),
        (f"I look. {FENCED.write([('f', {'x': 1}), ('f', {'x': 1})])}", "I look. ", [PARSED, PARSED]),
        (f"{FENCED.write([('g', {'x': 1})])}\nSo.", "\nSo.", [Told("g", '{"x": 1}')]),
        (FENCED.write([("f", {"x": 1})])[:-12], "", [PARSED]),
        (f'{DEEPSEEK}{DEEPSEEK_CALL}f{DEEPSEEK_NAME}{{"x": 1}}{DEEPSEEK_CALL_END}', "", [PARSED]),
        (f"{DEEPSEEK}no call", f"{DEEPSEEK}no call", []),
        (f"{DEEPSEEK}{DEEPSEEK_CALL}f ", f"{DEEPSEEK}{DEEPSEEK_CALL}f ", []),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_calls_and_text_are_separated(text: str, plain: str, calls: list[Told], step: int) -> None:
    parser = ToolCallParser({"f"}, {"f": {"properties": {"x": {"type": "integer"}}}})
    assert parted(parser, *(text[at : at + step] for at in range(0, len(text), step))) == (plain, calls)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "1", "1"),
        ({"type": "string"}, "a\n<b>\n", "a\n<b>\n"),
        ({"type": "integer"}, "1", 1),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "boolean"}, "True", True),
        ({"type": "integer"}, "many", "many"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "1", "1"),
        ({"anyOf": [{"type": "number"}]}, "1.5", 1.5),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1", "1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({"$ref": "#/properties/x"}, "1", 1),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"allOf": [{"$ref": "#/properties/text"}], "default": "1"}, "1", "1"),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "a"}]}, "1", "1"),
        ({"$ref": "#/properties/any", "type": "string"}, "1", "1"),
        ({"allOf": [{"type": "string"}, {"maxLength": 2}]}, "1", "1"),
        ({"type": "integer", "allOf": [{"minimum": 1}]}, "1", 1),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "-Infinity", "-Infinity"),
        ({"type": "object"}, '{"a": NaN}', '{"a": NaN}'),
        ({}, "[1]", [1]),
        (None, "1", "1"),
    ],
)
def test_an_argument_between_tags_is_of_the_type_that_its_schema_says(schema: Any, text: str, value: Any) -> None:
    tagged = f"<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>"
    others = {"text": {"type": "string"}, "any": {}}
    call = parse_function(tagged, {"f": {"properties": {"x": schema, **others}}})
    assert call is not None
    assert json.loads(call.arguments) == {"x": value}


@pytest.mark.parametrize("number", ["1e999", "0.10000000000000000001", "1" * 5000])
def test_a_number_between_tags_is_sent_as_it_was_written(number: str) -> None:
    schemas = {"f": {"properties": {"x": {"type": "number"}}}}
    call = parse_function(f"<function=f>\n<parameter=x>\n {number}\n</parameter>\n</function>", schemas)
    assert call is not None
    assert call.arguments == f'{{"x": {number}}}'


PARTS = [
    *MARKS,
    *CLOSES,
    "[ARGS]",
    "[CALL_ID]",
    "[",
    "]",
    "{",
    "}",
    '"',
    "\\",
    '"name": ',
    '"f"',
    ", ",
    ";",
    " ",
    "w",
    "<function=f>",
    "</function>",
    "```json",
    CALL,
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.integers(1, 9))
def test_how_an_answer_comes_in_pieces_changes_nothing(text: str, step: int) -> None:
    names = {"f": None, "w": None}
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert parted(ToolCallParser(names.keys()), *pieces) == parted(ToolCallParser(names.keys()), text)
    assert parted(ToolCallParser(names.keys()), f"w{text}")[0].startswith("w")


def test_a_call_is_told_as_it_is_written() -> None:
    """It used to be held back until its end, which takes a minute for a file that a tool should write."""
    parser = ToolCallParser({"f"})
    assert parser.push('I look.\n<tool_call>\n{"name": "f", "arguments": {') == ["I look.\n"]
    assert parser.push('"x": ') == [CallBegins("f"), CallArguments('{"x": ')]
    assert parser.push('"a') == [CallArguments('"a')]
    assert parser.push("\\") == []
    assert parser.push('""}') == [CallArguments('\\""}', ends=True)]
    assert parser.push("}\n</tool_call>\n") == []
    assert parser.finish() == []


@pytest.mark.parametrize(
    ("head", "tail"), [('<tool_call>{"name": "g", "arguments": {"x": "', '"}}'), ('[TOOL_CALLS]g[ARGS]{"x": "', '"}')]
)
def test_an_answer_of_a_long_object_is_read_once(head: str, tail: str) -> None:
    """Each token used to rescan everything before it."""
    parser = ToolCallParser({"f"})
    parser.push(head)
    start = time.process_time()
    for _ in range(10_000):
        assert parser.push("0123456789") == []
    assert time.process_time() - start < 2
    assert parser.push(tail)[0] == CallBegins("g", has_short_id=tail == '"}')


@pytest.mark.parametrize("inside", [f"{' ' * 300_000}x", "<parameter=" * 30_000, f"<parameter=x>{chr(10) * 300_000}x"])
def test_a_function_is_read_in_no_longer_than_it_is_long(inside: str) -> None:
    start = time.process_time()
    assert parse_function(f"<function=f>{inside}</function>", {}) is not None
    assert time.process_time() - start < 2  # it took minutes when each position was tried again


@pytest.mark.parametrize("size", [104, 1 << 20])
def test_many_calls_and_a_long_function_are_read_once(size: int) -> None:
    """16,000 calls at once took 16 s, and a function was rescanned from its beginning with every token."""
    calls = f"<tool_call>{CALL}</tool_call>" * 4_000
    function = f"<tool_call><function=g>{'<parameter=a>b</parameter>' * 4_000}</tool_call>"
    start = time.process_time()
    for text, begun in ((calls, 4_000), (function, 1)):
        parser = ToolCallParser({"f"})
        found = [piece for at in range(0, len(text), size) for piece in parser.push(text[at : at + size])]
        assert sum(isinstance(piece, CallBegins) for piece in found) == begun
    assert time.process_time() - start < 2


def test_json_that_can_be_no_call_is_told_at_once() -> None:
    parser = ToolCallParser({"f"}, takes_unmarked=False)
    assert parser.push(CALL) == [CALL]
    assert parser.push(f"<tool_call>{CALL}</tool_call>") == [CallBegins("f"), CallArguments('{"x": 1}', ends=True)]
    # An object that is not a call, by its first key.
    assert ToolCallParser({"f"}).push('{"answer": ') == ['{"answer": ']


@pytest.mark.parametrize("mark", ["[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>"])
def test_marks_are_shown_though_they_are_special_tokens(mark: str) -> None:
    fast = FastTokenizer(WordLevel({"w": 0}, unk_token="w"))
    fast.add_special_tokens([AddedToken(mark, special=True), AddedToken("</s>", special=True)])
    tokenizer = Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[2])
    assert tokenizer.decode([1, 0, 2]) == f"{mark}w"


def test_ids_are_as_long_as_the_models_template_takes_them() -> None:
    _, [call] = whole_calls(ToolSplit({"f": None}).push(f"[TOOL_CALLS][{CALL}]", is_last=True))
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    _, [call] = whole_calls(ToolSplit({"f": None}).push(CALL, is_last=True))
    assert call["id"].startswith("call_")
