"""Chat templates as Hugging Face renders them: from messages and tools to the prompt's text. Knows no token ids."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from local_engine.errors import InvalidRequest, ModelUnavailable
from local_engine.text.tool_formats import TAGS, ToolFormat
from local_engine.text.tool_turns import (
    Message,
    calls_of,
    one_call_each,
    with_results_told,
    with_short_ids,
    with_told_tools,
    with_written_calls,
)

PLAIN_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
# Ten times the longest known template: megabytes of tags take a minute to compile.
MOST_CHARACTERS: Final = 1 << 18
GENERATION, CONTINUES = "add_generation_prompt", "continue_final_message"
PROBE: Final = "ask3d"
# Templates with this test handle turns of calls without content themselves; others would write "None".
ASKS_FOR_NONE: Final = re.compile(r"content['\"\]]*\s+is\s+(not\s+)?none", re.IGNORECASE)
# Templates with this test look for tools in a message (Phi-4-mini's, in the system message).
ASKS_MESSAGE_FOR_TOOLS: Final = re.compile(r"message(\.tools\b|\[['\"]tools['\"]\])")
# Mistral's: ids of any other length are refused.
ASKS_FOR_SHORT_IDS: Final = re.compile(r"length\s*(!=|<)\s*9")
# Variables by which templates receive tools; SmolLM3's knows only the second.
TOOLS, XML_TOOLS, PYTHON_TOOLS = "tools", "xml_tools", "python_tools"
# What a template raises for conversations that it was not written for.
REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)


class ChatTemplate:
    """One model's template, and its separate one for conversations with tools, if any."""

    def __init__(
        self, source: str | None, tool_source: str | None, names: Mapping[str, str], calls: ToolFormat = TAGS
    ) -> None:
        """`names` are the texts of special tokens, `calls` is the model's call format for templates that do not write
        calls; raises ModelUnavailable for an invalid template."""
        self.parts = source, tool_source, dict(names), calls
        """The arguments to construct an equal one."""
        environment = _environment()
        self._template = _compile(environment, source or PLAIN_TEMPLATE)
        self._tool_template = self._template if tool_source is None else _compile(environment, tool_source)
        said = f"{source}{tool_source}"
        self._takes_none = ASKS_FOR_NONE.search(said) is not None
        self._has_tools_in_message = ASKS_MESSAGE_FOR_TOOLS.search(said) is not None
        named = environment.parse(tool_source or source or PLAIN_TEMPLATE).find_all(nodes.Name)
        reads = {name.name for name in named if name.ctx == "load"}
        self._reads_xml_tools = XML_TOOLS in reads and TOOLS not in reads
        is_told = not reads.isdisjoint((TOOLS, XML_TOOLS, PYTHON_TOOLS))
        self._knows_tools = is_told or tool_source is not None or self._has_tools_in_message
        self._writes_calls = "tool_calls" in said
        self._has_short_ids = ASKS_FOR_SHORT_IDS.search(said) is not None
        self._calls = calls
        self._names = dict(names)
        # Found at the first rendering: a template must not run where it is merely compiled.
        self._takes_parts: bool | None = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt, ready for the assistant's turn or, if `extra` contains `continue_final_message`, open at the end
        of the last message; raises InvalidRequest when the template refuses.

        `extra` are additional template variables, which take precedence over ours.
        """
        if self._takes_parts is None:
            self._takes_parts = not self._shows(PROBE) and self._shows(_as_parts(PROBE))
        told = self._told(messages, tools)
        try:
            return self._render(told, tools, extra)
        except InvalidRequest:
            if all(len(calls_of(message)) < 2 for message in told):
                raise
            return self._render(one_call_each(told), tools, extra)

    def _shows(self, content: Any) -> bool:
        """Whether the prompt contains a message given in this form: Llama-Guard-3-1B's template takes only lists of
        parts, and omits texts without a word."""
        names = {"messages": [{"role": "user", "content": content}], "tools": None, "documents": None, GENERATION: True}
        try:
            return PROBE in self._template.render(names | self._names)
        except REFUSALS:
            return False

    def _told(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> list[Message]:
        """The conversation, adapted to what the template supports."""
        told = list(messages)
        if not self._writes_calls:
            told = with_written_calls(told, self._calls)
        if not self._knows_tools:
            told = with_results_told(told)
            told = with_told_tools(told, tools, self._calls) if tools else told
        if self._has_short_ids:
            told = with_short_ids(told)
        told = [_readable(message, takes_none=self._takes_none) for message in told]
        return _with_tools(told, tools) if tools and self._has_tools_in_message else told

    def _render(
        self,
        messages: list[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any] | None,
    ) -> str:
        # Llama 3.1's templates test whether tools is none: an empty list would be presented to the model as tools.
        # As for transformers, without documents there is a variable that is none.
        names = {"messages": messages, "tools": tools or None, "documents": None, GENERATION: True}
        names |= self._names | dict(extra or {})
        if self._reads_xml_tools and tools and PYTHON_TOOLS not in names:
            names = {XML_TOOLS: tools} | names
        if not names.pop(CONTINUES, False):
            return self._rendered(names)
        if (extra or {}).get(GENERATION):
            raise InvalidRequest(
                "An answer either continues the last message or begins a new turn; leave out "
                "add_generation_prompt or continue_final_message.",
                parameter=CONTINUES,
            )
        mark = secrets.token_hex(16)
        # The blank after it reveals whether the template trims the end of a message.
        last = {**messages[-1], "content": f"{messages[-1].get('content') or ''}{mark} "}
        text = self._rendered(names | {"messages": [*messages[:-1], last], GENERATION: False})
        before, found, after = text.rpartition(mark)
        if not found:
            raise InvalidRequest(
                "The model's chat template omits the last message, so an answer cannot continue it.",
                parameter=CONTINUES,
            )
        return before if after.startswith(" ") else before.rstrip()

    def _rendered(self, names: Mapping[str, Any]) -> str:
        template = self._tool_template if names["tools"] else self._template
        try:
            if self._takes_parts:
                messages = [{**message, "content": _as_parts(message.get("content"))} for message in names["messages"]]
                names = {**names, "messages": messages}
            return template.render(names)
        except REFUSALS as error:
            raise InvalidRequest(
                f"The model's chat template refused the messages: {error}", parameter="messages"
            ) from error


class Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own shape

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Removes the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Arguments(dict[str, Any]):
    """A call's arguments: an object for most templates, JSON text for those that concatenate it."""

    def __str__(self) -> str:
        return _to_json(self)

    def __radd__(self, before: str) -> str:
        return f"{before}{self}"

    def __add__(self, after: str) -> str:
        return f"{self}{after}"


def _as_parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_tools(messages: list[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Puts the functions as JSON text into the system message, which is added if missing."""
    functions = _to_json([tool.get("function", tool) for tool in tools])
    has_system = bool(messages) and messages[0].get("role") == "system"
    system = messages[0] if has_system else {"role": "system", "content": ""}
    return [{**system, "tools": functions}, *messages[has_system:]]


def _readable(message: Mapping[str, Any], *, takes_none: bool) -> Mapping[str, Any]:
    """A message in the form that the template was written for."""
    has_content = takes_none or message.get("content") is not None
    readable = message if has_content else {**message, "content": ""}
    if not isinstance(calls := message.get("tool_calls"), list):
        return readable
    return {**readable, "tool_calls": [_readable_call(call) for call in cast(list[dict[str, Any]], calls)]}


def _readable_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function", {})
    if not isinstance(arguments := function.get("arguments"), dict):
        return call
    return {**call, "function": {**function, "arguments": Arguments(cast(dict[str, Any], arguments))}}


def _environment() -> ImmutableSandboxedEnvironment:
    # No constant folding at compile time: a template may be compiled in a process that it must not block.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation], optimized=False, finalize=_as_it_is
    )
    names = cast(dict[str, Any], environment.globals)
    names |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters["tojson"] = _to_json
    return environment


@jinja2.pass_context
def _as_it_is(_: Context, value: Any) -> Any:
    """Taking the context keeps constants from being rendered at compile time."""
    return value


def _compile(environment: ImmutableSandboxedEnvironment, source: str) -> jinja2.Template:
    if len(source) > MOST_CHARACTERS:
        raise ModelUnavailable(f"The model's chat template is longer than {MOST_CHARACTERS} characters.")
    try:
        return environment.from_string(source)
    # Python's own errors concern the code that a template compiles to: twenty nested loops are too many for it.
    except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError, MemoryError) as error:
        raise ModelUnavailable(
            f"The model's chat template cannot be read ({error}); correct it in its file."
        ) from error


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    """The date, for templates that pass it to the model."""
    return datetime.now().astimezone().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
