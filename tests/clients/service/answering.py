"""Decides what the provider says: a tool call where there are tools, an instance where there is a schema. No HTTP."""

import json
import re
from dataclasses import dataclass
from typing import Final, cast

Json = dict[str, object]
TEXT: Final = "Paris is the capital of France."
_STATUS: Final = re.compile(r"\[status (\d{3})\]")
_SAMPLES: Final[dict[str, object]] = {
    "string": "Paris",
    "integer": 7,
    "number": 7.5,
    "boolean": True,
    "null": None,
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One answer; `status` above 200 is a refusal."""

    text: str = ""
    tool_call: ToolCall | None = None
    status: int = 200

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.tool_call else "stop"


def answer(body: Json) -> Said:
    """What a model would say to this chat body. `[status 500]` in the last message makes it refuse with 500."""
    messages = cast(list[Json], body["messages"])
    last = messages[-1]
    if wanted := _STATUS.search(_text(last)):
        return Said(status=int(wanted[1]))
    if last.get("role") == "tool":
        return Said(f"The tool said: {_text(last)}")
    if tool := _tool(body):
        return Said(tool_call=tool)
    if (schema := _schema(body)) is not None:
        return Said(json.dumps(sample(schema, schema)))
    return Said(TEXT)


def sample(schema: Json, root: Json) -> object:
    """The simplest instance of a JSON schema, as far as client libraries make them."""
    if isinstance(reference := schema.get("$ref"), str):
        return sample(_resolve(reference, root), root)
    for union in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(union), list) and options:
            return sample(cast(Json, options[0]), root)
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list):
        return cast(list[object], choices)[0]
    if schema.get("type") == "array":
        return [sample(cast(Json, schema.get("items", {})), root)]
    if schema.get("type") == "object" or "properties" in schema:
        properties = cast(dict[str, Json], schema.get("properties", {}))
        return {name: sample(inner, root) for name, inner in properties.items()}
    kind = schema.get("type")
    return _SAMPLES.get(str(cast(list[object], kind)[0] if isinstance(kind, list) else kind), "Paris")


def _resolve(reference: str, root: Json) -> Json:
    found: Json = root
    for part in reference.removeprefix("#/").split("/"):
        found = cast(Json, found[part])
    return found


def _tool(body: Json) -> ToolCall | None:
    tools = cast(list[Json], body.get("tools") or [])
    choice = body.get("tool_choice")
    if not tools or choice == "none":
        return None
    functions = [cast(Json, tool["function"]) for tool in tools]
    forced = cast(Json, choice["function"]).get("name") if isinstance(choice, dict) else None
    function = next((one for one in functions if one["name"] == forced), functions[0])
    parameters = cast(Json, function.get("parameters") or {})
    return ToolCall(str(function["name"]), json.dumps(sample(parameters, parameters)))


def _schema(body: Json) -> Json | None:
    wanted = cast(Json, body.get("response_format") or {})
    if wanted.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    if wanted.get("type") == "json_schema":
        return cast(Json, cast(Json, wanted["json_schema"])["schema"])
    return None


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in cast(list[Json], content))
    return str(content or "")
