"""Tool calls found in text, whole and byte by byte."""

import pytest

from local_engine.tool_calls import ToolCall, ToolCallParser

CALL = '{"name": "f", "arguments": {"x": 1}}'
PARSED = ToolCall("f", '{"x": 1}')


@pytest.mark.parametrize(
    ("text", "plain", "calls"),
    [
        ("just text", "just text", []),
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [PARSED]),
        (f"before <tool_call>{CALL}</tool_call> after", "before  after", [PARSED]),
        (f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", "", [PARSED, PARSED]),
        ('{"name": "f", "parameters": {"x": 1}}', "", [PARSED]),
        ('{"answer": 42}', '{"answer": 42}', []),
        ("<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", []),
        (f"<tool_call>{CALL}", f"<tool_call>{CALL}", []),
        ("a < b and <tool", "a < b and <tool", []),
        ("", "", []),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_calls_and_text_are_separated(text: str, plain: str, calls: list[ToolCall], step: int) -> None:
    parser = ToolCallParser()
    pieces = [parser.push(text[at : at + step]) for at in range(0, len(text), step)] + [parser.finish()]
    assert "".join(piece for piece, _ in pieces) == plain
    assert [call for _, found in pieces for call in found] == calls
