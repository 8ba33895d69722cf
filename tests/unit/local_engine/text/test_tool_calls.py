"""Tool calls found in text, whole and byte by byte."""

import json
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel

from local_engine.server.openai_answers import ToolSplit
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_calls import ToolCall, ToolCallParser, parse_function

CALL = '{"name": "f", "arguments": {"x": 1}}'
PARSED = ToolCall("f", '{"x": 1}')
SHORT = ToolCall("f", '{"x": 1}', has_short_id=True)


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
        (f'{CALL}; {{"name": "Bob"}}', f'{CALL}; {{"name": "Bob"}}', []),
        ("<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", []),
        (f"<tool_call>{CALL}", f"<tool_call>{CALL}", []),
        ("a < b and <tool", "a < b and <tool", []),
        ("", "", []),
        (f"[TOOL_CALLS] [{CALL}, {CALL}]", "", [SHORT, SHORT]),
        (f"I look. [TOOL_CALLS][{CALL}]", "I look. ", [SHORT]),
        ('[TOOL_CALLS]f[ARGS]{"x": 1}', "", [SHORT]),
        ('[TOOL_CALLS]f[CALL_ID]a1[ARGS]{"x": 1}[TOOL_CALLS]f[ARGS]{"x": 1}', "", [SHORT, SHORT]),
        ("[TOOL_CALLS]f[ARGS]{", "[TOOL_CALLS]f[ARGS]{", []),
        (f"[TOOL_CALLS][{CALL}, 7]", f"[TOOL_CALLS][{CALL}, 7]", []),
        ("a list: [TOOL", "a list: [TOOL", []),
        (f"{CALL}; {CALL}", "", [PARSED, PARSED]),
        (f"{CALL}\n", "", [PARSED]),
        (f"{CALL}; and so on", f"{CALL}; and so on", []),
        (f'{CALL}; {{"answer": 42}}', f'{CALL}; {{"answer": 42}}', []),
        (f"<|python_tag|>{CALL}", "", [PARSED]),
        (f"I look. <|python_tag|>{CALL};{CALL}", "I look. ", [PARSED, PARSED]),
        ("I compute. <|python_tag|>print(1)", "I compute. print(1)", []),
        (f"<|tool_call|>[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        (f"I look. <|tool_call|>[{CALL}]<|/tool_call|>", "I look. ", [PARSED]),
        ("<|tool_call|>[1]", "<|tool_call|>[1]", []),
        (f"<|tool_call|>[{CALL}", f"<|tool_call|>[{CALL}", []),
        (f"functools[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        ("It uses functools[0] here.", "It uses functools[0] here.", []),
        (f"<tool_call>[{CALL}, {CALL}]", "", [PARSED, PARSED]),
        (f"<tool_call>[{CALL}]</tool_call>", "", [PARSED]),
        ("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>", "", [PARSED]),
        ("<tool_call><function=f></function></tool_call>", "", [ToolCall("f", "{}")]),
        ("<tool_call><function f></tool_call>", "<tool_call><function f></tool_call>", []),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_calls_and_text_are_separated(text: str, plain: str, calls: list[ToolCall], step: int) -> None:
    parser = ToolCallParser({"f"}, {"f": {"properties": {"x": {"type": "integer"}}}})
    pieces = [parser.push(text[at : at + step]) for at in range(0, len(text), step)] + [parser.finish()]
    assert "".join(piece for piece, _ in pieces) == plain
    assert [call for _, found in pieces for call in found] == calls


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
        (None, "1", "1"),
    ],
)
def test_an_argument_between_tags_is_of_the_type_that_its_schema_says(schema: Any, text: str, value: Any) -> None:
    tagged = f"<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>"
    call = parse_function(tagged, {"f": {"properties": {"x": schema}}})
    assert call is not None
    assert json.loads(call.arguments) == {"x": value}


def test_json_that_can_be_no_call_is_told_at_once() -> None:
    parser = ToolCallParser(set())
    assert parser.push(CALL) == (CALL, [])
    assert parser.push(f"<tool_call>{CALL}</tool_call>") == ("", [PARSED])


@pytest.mark.parametrize("mark", ["[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>"])
def test_marks_are_shown_though_they_are_special_tokens(mark: str) -> None:
    fast = FastTokenizer(WordLevel({"w": 0}, unk_token="w"))
    fast.add_special_tokens([AddedToken(mark, special=True), AddedToken("</s>", special=True)])
    tokenizer = Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[2])
    assert tokenizer.decode([1, 0, 2]) == f"{mark}w"


def test_ids_are_as_long_as_the_models_template_takes_them() -> None:
    _, calls = ToolSplit({"f"}).push(f"[TOOL_CALLS][{CALL}]", is_last=True)
    assert len(calls[0]["id"]) == 9
    assert calls[0]["id"].isalnum()
    _, calls = ToolSplit({"f"}).push(CALL, is_last=True)
    assert calls[0]["id"].startswith("call_")
