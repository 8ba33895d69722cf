"""Translates the tools of a Responses request to a chat's functions, and the chat's calls back. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from backends.endpoints.function_names import name_for_chats
from backends.formats.chat_fields import invalid, list_of, object_of, untranslatable
from backends.formats.json_objects import Fields, decode_object, objects_of, part_of, text_of

ToolKind = Literal["function", "custom"]
OFFER: Final = "additional_tools"
"""The type of an item that offers tools from there on. A chat offers them from its beginning."""
FREE_TEXT: Final[Fields] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters of a custom tool as a function: one text."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the request declares it; `fields` are its members."""

    kind: ToolKind
    name: str
    namespace: str | None
    fields: Fields

    @property
    def encrypts(self) -> bool:
        """Whether an argument is to be encrypted by OpenAI, as what Codex's agents tell each other."""
        given = part_of(part_of(self.fields, "parameters"), "properties")
        return any(part_of(given, name).get("encrypted") is True for name in given)


class Tools:
    """The tools of one request by the names of their chat functions: the tool's own name, prefixed with its namespace
    if several tools share it, as chats take it."""

    def __init__(self, tools: Iterable[Tool], *, keeps_custom: bool = False) -> None:
        self.keeps_custom = keeps_custom
        found = list(tools)
        count = Counter(tool.name for tool in found)
        self._by_function = {
            name_for_chats(
                tool.name if count[tool.name] == 1 or tool.namespace is None else f"{tool.namespace}__{tool.name}"
            ): tool
            for tool in found
        }
        self._functions: dict[tuple[str, str | None], str] = {}
        for function, tool in self._by_function.items():
            for namespace in (None, tool.namespace):
                self._functions.setdefault((tool.name, namespace), function)

    def functions(self, choice: object = None) -> list[Fields]:
        """The chat's tools; only the allowed ones if the tool choice names some."""
        allowed = None if not is_among_some(choice) else list_of(cast(Fields, choice).get("tools"), "tool_choice.tools")
        names = None if allowed is None else {text_of(object_of(tool, "tool_choice.tools"), "name") for tool in allowed}
        return [
            custom_of_chat(tool.fields) if self.keeps_custom and tool.kind == "custom" else function_of_tool(name, tool)
            for name, tool in self._by_function.items()
            if names is None or tool.name in names
        ]

    def function_of(self, item: Mapping[str, object]) -> object:
        """The name of the function that a call or a tool choice refers to."""
        name, namespace = item.get("name"), item.get("namespace")
        if not isinstance(name, str) or not isinstance(namespace, str | None):
            return name
        return self._functions.get((name, namespace)) or name_for_chats(name)

    def called(self, function: str) -> Tool:
        """The tool of a chat's call; an undeclared function is taken as it is."""
        return self._by_function.get(function) or Tool("function", function, None, {})


def parse_tools(fields: Fields, *, keeps_custom: bool = False) -> Tools:
    """The request's tools, and those that items of its input offer. `keeps_custom`: custom tools stay what they are.
    Raises UpstreamRejected; Untranslatable for a tool that chats lack."""
    found = list(_tools(list_of(fields.get("tools"), "tools"), "tools", None))
    for item in objects_of(fields.get("input")):
        if item.get("type") == OFFER:
            found += _tools(list_of(item.get("tools"), f"{OFFER}.tools"), f"{OFFER}.tools", None)
    return Tools(found, keeps_custom=keeps_custom)


def _tools(tools: list[object], where: str, namespace: str | None) -> Iterator[Tool]:
    for place, tool in enumerate(tools):
        here = f"{where}[{place}]"
        fields = object_of(tool, here)
        kind = fields.get("type")
        if kind == "namespace" and namespace is None:
            yield from _tools(list_of(fields.get("tools"), f"{here}.tools"), f"{here}.tools", _name(fields, here))
        elif kind in ("function", "custom"):
            yield Tool(kind, _name(fields, here), namespace, fields)
        elif not _is_search_of_nothing_live(fields):
            raise untranslatable(
                f"{here}.type",
                f"only models whose provider offers the Responses API know a tool of type {kind!r}; use one of them, "
                "leave it out, or make it a function",
            )


def _is_search_of_nothing_live(fields: Fields) -> bool:
    """Whether it is a search without web access, which coding agents add to every request: it can be dropped."""
    return fields.get("type") == "web_search" and fields.get("external_web_access") is False


def _name(fields: Fields, where: str) -> str:
    name = text_of(fields, "name")
    if not name:
        raise invalid(f"{where}.name", "must be the tool's name")
    return name


def function_of_tool(name: str, tool: Tool) -> Fields:
    """A tool as a chat's function of this name."""
    if tool.kind == "function":
        said = {
            key: tool.fields[key] for key in ("description", "parameters", "strict") if tool.fields.get(key) is not None
        }
        return {"type": "function", "function": {"name": name, **said}}
    description = text_of(tool.fields, "description") or ""
    form = part_of(tool.fields, "format")
    if form.get("type") == "grammar":
        description += f"\n\nThe input must follow this {form.get('syntax')} grammar:\n{form.get('definition')}"
    return {"type": "function", "function": {"name": name, "description": description, "parameters": FREE_TEXT}}


def custom_of_chat(fields: Fields) -> Fields:
    """A custom tool as a chat has it."""
    said = {name: fields[name] for name in ("name", "description") if fields.get(name) is not None}
    form = part_of(fields, "format")
    if form.get("type") == "grammar" and "grammar" not in form:
        form = {"type": "grammar", "grammar": {name: form.get(name) for name in ("syntax", "definition")}}
    return {"type": "custom", "custom": said | ({"format": form} if form else {})}


def is_among_some(choice: object) -> bool:
    """Whether a tool_choice allows some of the tools."""
    return isinstance(choice, dict) and cast(Fields, choice).get("type") == "allowed_tools"


def arguments_of(text: object) -> str:
    """A custom tool's input as a function's arguments."""
    return msgspec.json.encode({"input": text}).decode()


def input_of(arguments: str) -> str:
    """A function's arguments as a custom tool's input; invalid arguments are taken as the input itself."""
    said = text_of(decode_object(arguments.encode()) or {}, "input")
    return arguments if said is None else said


def echo(tool: object) -> object:
    """A tool as a response repeats it; functions with all members that clients' types require."""
    if not isinstance(tool, dict) or cast(Fields, tool).get("type") != "function":
        return cast(object, tool)
    return {"description": None, "parameters": None, "strict": False, **cast(Fields, tool)}
