"""The fields of an OpenAI chat body other than its messages, checked and typed for adapters of other formats. Pure.

Fields that a format lacks are either dropped (if they only tune the answer: `seed`, `logit_bias`, ...) or rejected (if
the answer would differ without them: `n` above 1, audio). docs/translation.md lists which, per format.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.answer_schema import JSON_KINDS, schema_in
from backends.formats.json_objects import Fields, decode_object, text_of
from backends.formats.openai import error_body

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From lowest to highest."""
TEXTS: Final = ("user", "safety_identifier", "reasoning_effort", "service_tier")

ToolChoice = Literal["auto", "none", "required"] | tuple[Literal["tool"], str]


def in_background() -> UpstreamRejected:
    """The error for the Responses API's `background`, at every endpoint that takes it."""
    why = "this gateway keeps no responses (kept_answers.response_hours); leave it out, and stream what takes long"
    return invalid("background", why)


def untranslatable(param: str, why: str) -> Untranslatable:
    """The error for a request that this backend's format cannot express."""
    return Untranslatable(f"{param}: {why}", status=400, body=_body(param, why, "unsupported_parameter"))


def invalid(param: str, why: str) -> UpstreamRejected:
    """The error for a request that is invalid for any backend."""
    return UpstreamRejected(f"{param}: {why}", status=400, body=_body(param, why, "invalid_value"))


def _body(param: str, why: str, code: str) -> bytes:
    return error_body(f"{param}: {why}", kind="invalid_request_error", code=code, param=param)


def parse_object(body: bytes) -> Fields:
    """A whole body. Raises UpstreamRejected unless it is a JSON object."""
    if (fields := decode_object(body)) is None:
        raise invalid("body", "must be a JSON object")
    return fields


def object_of(value: object, where: str) -> Fields:
    """A JSON object. Raises UpstreamRejected."""
    if not isinstance(value, dict):
        raise invalid(where, "must be an object")
    return cast(Fields, value)


def list_of(value: object, where: str) -> list[object]:
    """A JSON list, empty if it is null. Raises UpstreamRejected."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid(where, "must be a list")
    return cast(list[object], value)


def mark_of(fields: Fields) -> Fields | None:
    """Anthropic's `cache_control`."""
    mark = fields.get("cache_control")
    return cast(Fields, mark) if isinstance(mark, dict) else None


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str | None
    parameters: Fields
    is_strict: bool
    cache_control: Fields | None = None


def check_fields(fields: Fields) -> None:
    """Checks types and ranges of passed-on fields against OpenAI's. Raises UpstreamRejected, naming the field."""
    for name, (least, most) in RANGES.items():
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(name, "must be a number")
        if not least <= value <= most:
            raise invalid(name, f"must be from {least} to {most}, not {value}")
    for name in TEXTS:
        if not isinstance(fields.get(name), str | None):
            raise invalid(name, "must be a string")
    if (effort := fields.get("reasoning_effort")) is not None and effort not in EFFORTS:
        raise invalid("reasoning_effort", f"must be one of {', '.join(EFFORTS)}")
    seed = fields.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise invalid("seed", "must be an integer")
    if not isinstance(fields.get("parallel_tool_calls"), bool | None):
        raise invalid("parallel_tool_calls", "must be true or false")


def refuse_unsayable(fields: Fields) -> None:
    """Raises Untranslatable for fields that cannot be translated and would change the answer if dropped."""
    if fields.get("n") not in (None, 1):
        raise untranslatable("n", "this model gives only one choice")
    if "audio" in list_of(fields.get("modalities"), "modalities"):
        raise untranslatable("modalities", "this model cannot answer with audio")
    if fields.get("audio") is not None:
        raise untranslatable("audio", "this model cannot answer with audio")
    if fields.get("moderation") is not None:
        raise untranslatable("moderation", "only OpenAI moderates chats as they are answered; use one of its models")
    if fields.get("web_search_options") is not None:
        raise untranslatable("web_search_options", "this model cannot search the web here")


def parse_stop(stop: object) -> tuple[str, ...]:
    """The stop sequences; empty ones are dropped."""
    found = [stop] if isinstance(stop, str) else list_of(stop, "stop")
    if not all(isinstance(item, str) for item in found):
        raise invalid("stop", "must be a string or a list of strings")
    return tuple(item for item in cast(list[str], found) if item)


def parse_response_format(value: object) -> tuple[Fields | None, bool]:
    """(schema, whether JSON is wanted)."""
    if value is None:
        return None, False
    form = object_of(value, "response_format")
    kind, schema = form.get("type"), schema_in(form)
    if kind == "text":
        return None, False
    if kind not in JSON_KINDS:
        raise invalid("response_format", "must be text, json_object or json_schema")
    if schema is None and kind != "json_schema":
        return None, True
    return object_of(schema, "response_format.json_schema.schema"), True


def parse_tools(fields: Fields) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """(tools, tool choice), from `tools` or the deprecated `functions`.

    With `allowed_tools`, tools that are not allowed are left out. So is a tool that is there twice, as two servers of
    one kind offer it: Anthropic and Gemini refuse that, OpenAI does not.
    """
    tools = _once(_tools(fields))
    choice = fields.get("tool_choice")
    if choice is None and (called := fields.get("function_call")) is not None:
        choice = {"function": called} if isinstance(called, dict) else called
    if not isinstance(choice, dict) or cast(Fields, choice).get("type") != "allowed_tools":
        return tools, _tool_choice(choice)
    allowed = object_of(cast(Fields, choice).get("allowed_tools"), "tool_choice.allowed_tools")
    where = "tool_choice.allowed_tools.tools"
    wanted = {
        text_of(object_of(object_of(item, where).get("function"), where), "name")
        for item in list_of(allowed.get("tools"), where)
    }
    return tuple(tool for tool in tools if tool.name in wanted), _tool_choice(allowed.get("mode"))


def _once(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """What is left out may be marked for a prompt cache, as the last tool is: then the one before it is."""
    known: dict[str, Tool] = {}
    kept: list[Tool] = []
    for tool in tools:
        first = known.setdefault(tool.name, tool)
        if first is tool or replace(tool, cache_control=first.cache_control) != first:
            kept.append(tool)
        elif tool.cache_control is not None:
            kept[-1] = replace(kept[-1], cache_control=tool.cache_control)
    return tuple(kept)


def _tools(fields: Fields) -> Iterator[Tool]:
    tools = [*list_of(fields.get("tools"), "tools")]
    tools += [{"type": "function", "function": function} for function in list_of(fields.get("functions"), "functions")]
    for position, item in enumerate(tools):
        tool = object_of(item, f"tools[{position}]")
        if tool.get("type") != "function":
            raise untranslatable(f"tools[{position}].type", "only functions can be translated")
        function = object_of(tool.get("function"), f"tools[{position}].function")
        parameters = function.get("parameters")
        name = text_of(function, "name")
        if not name:
            raise invalid(f"tools[{position}].function.name", "must be a name")
        yield Tool(
            name=name,
            description=text_of(function, "description"),
            parameters=cast(Fields, parameters)
            if isinstance(parameters, dict)
            else {"type": "object", "properties": {}},
            is_strict=function.get("strict") is True,
            cache_control=mark_of(tool) or mark_of(function),
        )


def _tool_choice(choice: object) -> ToolChoice | None:
    if choice == "any":  # Mistral's word
        return "required"
    if choice is None or choice == "auto" or choice == "none" or choice == "required":
        return cast(Literal["auto", "none", "required"] | None, choice)
    if isinstance(choice, dict):
        function = cast(Fields, choice).get("function")
        name = text_of(cast(Fields, function), "name") if isinstance(function, dict) else None
        if name:
            return ("tool", name)
        if cast(Fields, choice).get("type") == "custom":
            raise untranslatable("tool_choice", "only functions can be translated")
    raise invalid("tool_choice", "must be auto, none, required or a function")
