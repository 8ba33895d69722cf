"""Turns of tool calls as expected by different models' templates: without content, arguments as objects or text."""

import tracemalloc
from typing import Any

import pytest

from local_engine.errors import InvalidRequest
from local_engine.text.chat_template import ChatTemplate
from local_engine.text.messages import plain_message

CALL: dict[str, Any] = {"type": "function", "function": {"name": "f", "arguments": '{"city":"Köln"}'}}
# Like DeepSeek's distilled models: calls only if there is no content, with arguments concatenated to texts.
ASKING = (
    "{% for m in messages %}{% if m['role'] == 'assistant' and m['content'] is none %}"
    "{% for call in m['tool_calls'] %}"
    "{{ '[' + call['function']['name'] + ' ' + call['function']['arguments'] + ']' }}{% endfor %}{% endif %}"
    "{% if m['content'] is not none %}{{ m['content'] }};{% endif %}{% endfor %}"
)
# Like Hermes and Qwen: content first, whatever it is, then calls as JSON.
WRITING = (
    "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}"
    "[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %};{% endfor %}"
)
PRINTING = "{% for call in messages[0].tool_calls %}{{ call.function.arguments }}{% endfor %}"


def rendered(template: str, *messages: dict[str, Any]) -> str:
    return ChatTemplate(template, None, {}).render([plain_message(message, 0) for message in messages])


@pytest.mark.parametrize(
    ("template", "content", "text"),
    [
        (ASKING, {"content": None}, '[f {"city": "Köln"}]'),
        (ASKING, {}, '[f {"city": "Köln"}]'),
        (ASKING, {"content": "I look"}, "I look;"),
        (WRITING, {"content": None}, '[f {"city": "Köln"}];'),
        (WRITING, {"content": "I look"}, 'I look[f {"city": "Köln"}];'),
        (PRINTING, {"content": None}, '{"city": "Köln"}'),
    ],
)
def test_calls_without_content_are_written_as_the_template_was_written_for(
    template: str, content: dict[str, Any], text: str
) -> None:
    assert rendered(template, {"role": "assistant", "tool_calls": [CALL], **content}) == text


@pytest.mark.parametrize("template", [ASKING, WRITING])
def test_a_message_of_nothing_is_empty(template: str) -> None:
    """Without calls, no turn has another form."""
    assert rendered(template, {"role": "assistant", "content": None}, {"role": "user", "content": "x"}) == ";x;"


def test_an_empty_list_of_tools_is_none_to_a_template() -> None:
    """As tested by Llama 3.1's template: agents without tools send an empty list."""
    template = ChatTemplate("{% if tools is not none %}Environment: ipython{% endif %}hi", None, {})
    assert template.render([], tools=[]) == "hi"
    assert template.render([], tools=[{"type": "function"}]) == "Environment: ipythonhi"


def test_a_tools_own_template_is_asked_too() -> None:
    template = ChatTemplate("plain", ASKING, {})
    message = plain_message({"role": "assistant", "content": None, "tool_calls": [CALL]}, 0)
    assert template.render([message], tools=[{"type": "function"}]) == '[f {"city": "Köln"}]'


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 // (messages | length - 1) }}",
        "{{ range(999999999) | length }}",
        "{{ '{0} {1}'.format(messages) }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_cannot_reckon_with_the_messages_refuses_them(template: str) -> None:
    with pytest.raises(InvalidRequest, match="template refused the messages"):
        rendered(template, {"role": "user", "content": "Hi"})


def test_nothing_is_rendered_while_a_template_is_read() -> None:
    """Code that exhausts resources would do so even at compile time."""
    tracemalloc.start()
    ChatTemplate("{{ 'a' | center(10 ** 7) }}{{ 'a' | center(10000000) }}", None, {})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10**7


@pytest.mark.parametrize("has_system", [False, True])
def test_a_template_that_looks_for_its_tools_in_a_message_finds_them_there(*, has_system: bool) -> None:
    """As in Phi-4-mini's: the functions themselves, as text."""
    template = ChatTemplate(
        "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is "
        "not none %}{{ message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}{% else %}"
        "{{ message['content'] }}{% endif %}{% endfor %}",
        None,
        {},
    )
    messages = [{"role": "system", "content": "Help."}] * has_system + [{"role": "user", "content": "Hi."}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    told = '<|tool|>[{"name": "f", "parameters": {}}]<|/tool|>Hi.'
    assert template.render(messages, tools=tools) == ("Help." if has_system else "") + told
    assert template.render(messages) == ("Help." if has_system else "") + "Hi."
