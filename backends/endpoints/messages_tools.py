"""Translates the tools of a Messages request to a chat's functions. Pure."""

from typing import Final, cast

from backends.endpoints.function_names import may_be_renamed, name_for_chats, own_names
from backends.endpoints.messages_fields import invalid, list_of, named, object_of, unsayable
from backends.formats.json_objects import Fields, decode_object, objects_of, part_of, text_of
from backends.formats.schema_subset import for_openai, is_strict

CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
"""Anthropic's, which are objects, as a chat's."""
TOOL_CHANGES: Final = ("tool_addition", "tool_removal")
"""Blocks that change the tools from there on. Chats offer one list of tools: what is left at the end."""


def tools_of(fields: Fields) -> list[Fields]:
    """The functions that can be called at the end of the messages. Raises as `chat_body_from_messages`."""
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(list_of(fields, "tools"))]
    known = {_name_of(tool): tool for tool in tools}
    for place, item in enumerate(list_of(fields, "messages")):
        for block in objects_of(cast(Fields, item).get("content")):
            if (kind := block.get("type")) not in TOOL_CHANGES:
                continue
            change = part_of(block, "tool")
            name = name_for_chats(text_of(change, "name") or "")
            if "definition" in change:
                defined = _tool(change["definition"], f"messages[{place}].content")
                name = _name_of(defined)
                known[name] = defined
            tools = [tool for tool in tools if _name_of(tool) != name]
            if kind == "tool_addition" and name in known:
                tools.append(known[name])
    return tools


def _name_of(tool: Fields) -> str:
    return text_of(part_of(tool, "function"), "name") or ""


def _tool(tool: object, where: str) -> Fields:
    fields = object_of(tool, where)
    if (kind := fields.get("type")) not in (None, "custom"):
        why = f"only Anthropic's models know a tool of type {kind!r}; leave it out, or describe it by an `input_schema`"
        raise unsayable(f"{where}.type", why)
    schema = object_of(fields.get("input_schema") or {"type": "object"}, f"{where}.input_schema")
    function: Fields = {"name": name_for_chats(named(fields, "name", where)), "parameters": for_openai(schema)}
    if isinstance(fields.get("description"), str):
        function["description"] = fields["description"]
    if fields.get("strict") is True and is_strict_schema(schema):
        function["strict"] = True
    made: Fields = {"type": "function", "function": function}
    return made | ({"cache_control": fields["cache_control"]} if isinstance(fields.get("cache_control"), dict) else {})


def tool_choice(fields: Fields) -> Fields:
    """The fields of a chat that say which of the tools are called. Raises as `chat_body_from_messages`."""
    choice = part_of(fields, "tool_choice")
    kind = choice.get("type")
    if kind is None:
        return {}
    parallel: Fields = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    if kind == "tool":
        name = text_of(choice, "name")
        function = {"name": name_for_chats(name) if name else name}
        return {"tool_choice": {"type": "function", "function": function}} | parallel
    if not isinstance(kind, str) or kind not in CHOICES:
        raise invalid("tool_choice.type", "must be auto, any, tool or none")
    return {"tool_choice": CHOICES[kind]} | parallel


def own_name(body: bytes, sent: str) -> str:
    """The caller's own name of a function that the chat may have renamed."""
    if not may_be_renamed(sent):
        return sent
    fields = decode_object(body) or {}
    blocks = [block for message in objects_of(fields.get("messages")) for block in objects_of(message.get("content"))]
    added = [part_of(part_of(block, "tool"), "definition") for block in blocks]
    names = own_names(name for tool in (*objects_of(fields.get("tools")), *added) if (name := text_of(tool, "name")))
    return names.get(sent, sent)


def is_strict_schema(schema: object) -> bool:
    """Whether OpenAI accepts the schema as strict: it rejects optional members, which Anthropic allows."""
    try:
        return is_strict(schema)
    except RecursionError:
        return False
