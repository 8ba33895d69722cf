"""Validates a conversation as sent by callers, and converts it to the form that chat templates expect. Knows no
model."""

import json
from typing import Any, Final

from local_engine.errors import InvalidRequest, NotOffered

# OpenAI's role names, and those that chat templates know.
ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

# Fields for an assistant turn's reasoning; templates read the first.
REASONING: Final = ("reasoning_content", "thinking", "reasoning")


def plain_message(message: dict[str, Any], index: int) -> dict[str, Any]:
    """A message with a known role and a single string as content, None if it is empty beside calls: DeepSeek's
    templates ignore calls beside empty content. Raises InvalidRequest for content that is not text."""
    where = f"messages[{index}]"
    # Clients send back every field of an answer, and templates test whether a field exists, not its value.
    said = {name: value for name, value in message.items() if value is not None and (name, value) != ("tool_calls", [])}
    plain = said | {"role": _role(message.get("role"), where), "content": _text(message.get("content"), where)}
    if (reasoning := next((said[name] for name in REASONING if name in said), None)) is not None:
        plain["reasoning_content"] = reasoning
    if "tool_calls" in said:
        plain["tool_calls"] = _tool_calls(said["tool_calls"], where)
        plain["content"] = plain["content"] or None
    return plain


def _role(role: Any, where: str) -> str:
    if not isinstance(role, str):
        raise InvalidRequest("Every message needs a role.", parameter=f"{where}.role")
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise InvalidRequest(f"{role!r} is not the role of a message; use one of {known}.", parameter=f"{where}.role")
    return ROLES[role]


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(_part_text(part, where) for part in content)
    if not isinstance(content, str):
        raise InvalidRequest(
            "A message's content must be a string or a list of text parts.", parameter=f"{where}.content"
        )
    return content


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    raise NotOffered("This model reads text only.", parameter=f"{where}.content")


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(calls, list) and all(isinstance(call, dict) for call in calls):
        return [_tool_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]
    raise InvalidRequest("tool_calls is a list of calls.", parameter=f"{where}.tool_calls")


def _tool_call(call: dict[str, Any], where: str) -> dict[str, Any]:
    """The call with its arguments as an object: templates write them as JSON, and would quote a string again."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("A tool call needs a function with a name.", parameter=where)
    # In the order in which models write them: Mistral's templates print the function as it is.
    named = {"name": function["name"], "arguments": _arguments(function.get("arguments"))}
    return call | {"function": named | {name: value for name, value in function.items() if name not in named}}


def _arguments(sent: Any) -> Any:
    """Arguments as an object. Text that is not JSON counts as none: a model may have been cut off in it, and its client
    sends it again with every later turn."""
    try:
        arguments = json.loads(sent) if isinstance(sent, str) else sent
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, (dict, list)) else {}
