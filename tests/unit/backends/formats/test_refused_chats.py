"""Chats that a server refuses for more than their messages."""

import msgspec
import pytest

from backends.formats.refused_chats import (
    chat_mend_for,
    may_be_quoted,
    with_called_functions,
    with_parameters,
    with_schema_beside_type,
    without_a_choice_of_none,
    without_nulls,
    without_thinking_unless_streamed,
)

LLAMA_CPP_PYTHON = "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'tools', 0, 'function', 'parameters'), "
"""Of its server, 0.3.36."""
WORDS = [
    ("parameter.enable_thinking must be set to false for non-streaming calls", without_thinking_unless_streamed),
    ("parameter.enable_thinking必须设置为false才能进行非流式调用", without_thinking_unless_streamed),
    ("enable thinking can not be support when `stream=False`.", without_thinking_unless_streamed),
    ("Value error, current model does not support parameter `enable_thinking`.", None),
    ("invalid params, function parameters is empty (2013)", with_parameters),
    ("invalid params, function name or parameters is empty (2013)", with_parameters),
    ('Bad request: "parameters" is a required property for "function" object in parameter "tools"', with_parameters),
    (f"{LLAMA_CPP_PYTHON}'msg': 'Field required', 'input': {{'name': 'f'}}}}\n", with_parameters),
    (
        "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
        "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}\n",
        with_schema_beside_type,
    ),
    (
        "1 validation error:\n  {'type': 'float_type', 'loc': ('body', 'temperature'), "
        "'msg': 'Input should be a valid number', 'input': None}\n",
        without_nulls,
    ),
    ("temperature must be of type ('float', 'int')", without_nulls),
    ("body.text.dimensions: Input should be a valid integer", without_nulls),
    (
        "body.tools.0.function.description: Field required; body.tools.0.function.parameters: Field required",
        with_parameters,
    ),
    ("Requests which include `tool_use` or `tool_result` blocks must define tools.", with_called_functions),
    (
        "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified.",
        with_called_functions,
    ),
    (
        "litellm.UnsupportedParamsError: Bedrock doesn't support tool_choice=none. To drop it from the call, set "
        "`litellm.drop_params = True.",
        without_a_choice_of_none,
    ),
    ("The toolConfig field must be defined when using toolUse and toolResult content blocks.", with_called_functions),
]


@pytest.mark.parametrize(("words", "mend"), WORDS)
def test_each_provider_has_its_words(words: str, mend: object) -> None:
    assert chat_mend_for(msgspec.json.encode({"error": {"message": words}})) is mend


def test_what_is_null_is_left_out() -> None:
    assert without_nulls(b'{"a":null,"b": 1.50,"c": null}') == b'{"b": 1.50}'
    assert without_nulls(b'{"a":[null],"b":"null"}') == b'{"a":[null],"b":"null"}'


def test_a_schema_stands_beside_its_type() -> None:
    body = b'{"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}},"x": 1.50}'
    told = b'{"response_format":{"type":"json_object","schema":{"type":"object"}},"x": 1.50}'
    assert with_schema_beside_type(body) == told
    for unchanged in (told, b'{"response_format":{"type":"json_schema"}}', b'{"messages":[]}'):
        assert with_schema_beside_type(unchanged) == unchanged


@pytest.mark.parametrize("words", [words for words, mend in WORDS if mend])
def test_a_chat_with_such_words_teaches_nothing(words: str) -> None:
    """However they are written: one whose quotes were escaped by number had all schemas of a model left out."""
    hidden = "".join(f"\\u{ord(one):04x}" for one in words)
    for text in (msgspec.json.encode(words), f'"{hidden}"'.encode()):
        assert may_be_quoted(b'{"messages":[{"content":%b}]}' % text)


@pytest.mark.parametrize("more", ["", ',"stream":false', ', "stream": false'])
def test_a_chat_that_is_not_streamed_is_not_thought_about(more: str) -> None:
    body = b'{"messages":[]%b}' % more.encode()
    assert msgspec.json.decode(without_thinking_unless_streamed(body))["enable_thinking"] is False


@pytest.mark.parametrize("more", ['"stream":true', '"enable_thinking":true', '"reasoning_effort":"high"'])
def test_who_streams_or_says_how_to_think_is_heard(more: str) -> None:
    body = b'{"messages":[],%b}' % more.encode()
    assert without_thinking_unless_streamed(body) == body


def test_a_chat_without_functions_has_those_that_it_called_but_calls_none() -> None:
    called = '{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f"}},{"id":"2","function":{"name":"g"}}]}'
    messages = f'[{{"role":"user","content":"hi"}},{called},{{"tool_calls":null}},{called}]'
    for none in ("", ',"tools":null', ',"tools":[]'):
        made = msgspec.json.decode(with_called_functions(f'{{"messages":{messages}{none}}}'.encode()))
        assert [tool["function"]["name"] for tool in made["tools"]] == ["f", "g"]
        assert made["tool_choice"] == "none"
    for unchanged in (
        f'{{"messages":{messages},"tools":[7]}}',
        '{"messages":[{"role":"user","content":"hi"}]}',
        '{"messages":[{"tool_calls":7},{"tool_calls":[{"function":"f"}]}]}',
        "{}",
    ):
        assert with_called_functions(unchanged.encode()) == unchanged.encode()


def test_only_a_choice_of_none_is_left_out() -> None:
    assert without_a_choice_of_none(b'{"tools":[7],"tool_choice":"none"}') == b'{"tools":[7]}'
    for unchanged in (b'{"tools":[7],"tool_choice":"required"}', b'{"tools":[7]}'):
        assert without_a_choice_of_none(unchanged) == unchanged


def test_functions_without_parameters_say_so() -> None:
    def chat(*functions: str) -> bytes:
        tools = ",".join(f'{{"type":"function","function":{one}}}' for one in functions)
        return b'{"tools":[%b],"x": 1.50}' % tools.encode()

    none = '"parameters":{"type":"object","properties":{}}'
    kept = '{"name":"g","parameters":{"type": "object"}}'
    assert with_parameters(chat('{"name":"f"}', kept)) == chat(f'{{"name":"f",{none}}}', kept)
    for unchanged in (chat(kept), b'{"messages":[]}', chat("7"), b'{"tools":[{"type":"custom"}]}'):
        assert with_parameters(unchanged) == unchanged
