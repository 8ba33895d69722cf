"""How often a provider's own tools may run for a request, so that a budget can hold their price. Pure; knows no prices.

A request without a limit is assumed to make ASSUMED_CALLS; under a budget, that limit is written into the request if
the endpoint has a field for it.
"""

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from backends.formats.json_splice import ESCAPE, MEMBERS, OBJECTS, VALUES, Member, find_members, splice
from gateway.pricing.price import ToolKind
from gateway.request.bodies import (
    ABSENT,
    AnyBody,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    MessagesBody,
    ResponsesBody,
    later_tools,
)

ASSUMED_CALLS: Final = 5
TOOL_RESULT_TOKENS: Final = 10_000
"""Assumed input tokens that one search or fetched page adds; the limit of pages where a request sets none."""
MARKS: Final = (
    *(b"search", b"code_interpreter", b"code_execution", b"image_generation", b"shell", b"web_fetch", b"advisor"),
    b"openrouter:",
)
"""A body without any of these names, and without an escape that may spell one, has no such tool, so most agents' tools
need not be parsed one by one."""
OF_CALLERS: Final = ("", "function", "custom")
"""Types of chat tools that the caller runs. All others are run by the provider and billed per call, whatever their
name: `browser_search` at Groq, `openrouter:web_search`, `builtin_function` at Moonshot. A chat's usage omits them."""
RESPONSES_KINDS: Final[dict[str, ToolKind]] = {
    "file_search": "file_search",
    "code_interpreter": "other",
    "x_search": "other",
    "code_execution": "other",
    "attachment_search": "other",
    "collections_search": "other",
}
FETCH: Final[ToolKind] = "free"
"""Pages that Anthropic fetches are billed by their tokens."""
ASKING_MODELS: Final = ("advisor_", "image_generation", "openrouter:")
"""How the types of tools begin that have another model work on the answer."""
ASKING_NONE: Final = frozenset({"openrouter:datetime", "openrouter:web_fetch", "openrouter:web_search"})
PLUGINS: Final[dict[str, ToolKind]] = {
    "": "web_search",
    "web": "web_search",
    "file-parser": "other",
    "context-compression": "free",
    "response-healing": "free",
}
"""OpenRouter's plugins that ask no other model; `auto-router` chooses one, and `fusion` asks a panel."""


class HostedTools(msgspec.Struct, frozen=True):
    """At most `calls` calls, in total, of tools of these kinds. `is_limited`: the request itself sets all limits.
    `longer_tokens`: by how many their results may exceed TOOL_RESULT_TOKENS each, in total.
    `asks_other_models`: it names further models to work on the answer, at their own prices."""

    calls: int = 0
    kinds: frozenset[ToolKind] = frozenset()
    is_limited: bool = True
    asks_other_models: bool = False
    longer_tokens: int = 0


NO_TOOLS: Final = HostedTools()
NO_KINDS: Final[frozenset[ToolKind]] = frozenset()
_FUNCTION: Final = msgspec.Raw(b'"function"')
_WITH_TOOLS: Final = (ChatBody, ResponsesBody, MessagesBody)
OTHER_MODELS: Final = HostedTools(1, frozenset[ToolKind]({"other"}), asks_other_models=True)


class _Tool(msgspec.Struct):
    """Members are decoded lazily, so that an invalid value elsewhere cannot hide the tool's kind."""

    type: msgspec.Raw = ABSENT
    max_uses: msgspec.Raw = ABSENT
    max_content_tokens: msgspec.Raw = ABSENT
    environment: msgspec.Raw = ABSENT


class _Kind(msgspec.Struct):
    """The only fields read of a chat's tools, which may be long, and of its plugins."""

    type: msgspec.Raw = ABSENT
    id: msgspec.Raw = ABSENT


_TOOL: Final = msgspec.json.Decoder(_Tool)
_KIND: Final = msgspec.json.Decoder(_Kind)


def _parse_tool(raw: msgspec.Raw | bytes) -> _Tool:
    """Empty for anything that is not an object: the provider will refuse it."""
    try:
        return _TOOL.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _Tool()


def _value(raw: msgspec.Raw) -> object:
    """None if it is absent, null or undecodable."""
    try:
        return msgspec.json.decode(raw) if memoryview(raw) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def hosted_tools(parsed: AnyBody, body: bytes) -> HostedTools:
    if not isinstance(parsed, _WITH_TOOLS):
        is_answered = isinstance(parsed, CompletionBody | EmbeddingBody)
        return OTHER_MODELS if is_answered and parsed.are_named else NO_TOOLS
    plugins = _plugins(parsed.plugins) if parsed.plugins and _is_given(parsed.plugins) else NO_KINDS
    if plugins is None or parsed.are_named:
        return OTHER_MODELS
    if isinstance(parsed, ChatBody):
        return _of_chat(parsed, plugins)
    if isinstance(parsed, MessagesBody) and (parsed.models or parsed.preset):
        return OTHER_MODELS
    found = _of_tools(parsed, body)
    if not plugins or found.asks_other_models:
        return found
    return msgspec.structs.replace(found, calls=found.calls + ASSUMED_CALLS, kinds=found.kinds | plugins)


def _of_tools(parsed: ResponsesBody | MessagesBody, body: bytes) -> HostedTools:
    tools = [*(parsed.tools or ()), *later_tools(parsed)]
    if not tools:
        return NO_TOOLS
    if ESCAPE not in body and not any(mark in body for mark in MARKS):
        return NO_TOOLS
    if isinstance(parsed, ResponsesBody):
        return _of_responses(tools, parsed.max_tool_calls)
    return _of_messages(tools)


def _plugins(raw: msgspec.Raw) -> frozenset[ToolKind] | None:
    """What OpenRouter's plugins are billed as; None if one of them asks other models."""
    try:
        named = [_text(_kind(one).id) for one in VALUES.decode(raw)]
    except (msgspec.DecodeError, RecursionError):  # not a list: the provider will refuse it
        named = [""]
    return frozenset(PLUGINS[name] for name in named) if PLUGINS.keys() >= set(named) else None


def _asks_models(name: str) -> bool:
    return name.startswith(ASKING_MODELS) and name not in ASKING_NONE


def _is_given(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null", b"false")


def limit_calls(body: bytes, tools: HostedTools) -> bytes:
    """The body with ASSUMED_CALLS written into it if the endpoint has a field for that; otherwise unchanged."""
    if tools.is_limited:
        return body
    members = find_members(body)
    if "contents" in members:  # Gemini's format has no such field
        return body
    if "messages" not in members:
        return splice(body, {"max_tool_calls": b"%d" % ASSUMED_CALLS}, members)
    edits: dict[str, bytes | None] = {"messages": _limited_inside(_member(body, members["messages"]))}
    if (place := members.get("tools")) and (tools_said := _member(body, place)) != b"null":
        limited = b",".join(_with_limit(bytes(one)) for one in VALUES.decode(tools_said))
        edits["tools"] = b"[" + limited + b"]"
    return splice(body, edits, members)


def _member(body: bytes, place: Member) -> bytes:
    return body[place.start : place.end]


def _limited_inside(messages: bytes) -> bytes:
    """Messages with a limit written into the tools that they define."""
    turns, is_changed = OBJECTS.decode(messages), False
    for turn in turns:
        if not bytes(content := turn.get("content", ABSENT)).startswith(b"["):
            continue
        blocks = OBJECTS.decode(content)
        for block in blocks:
            try:
                offer = MEMBERS.decode(block["tool"])
                limited = _with_limit(came := bytes(offer["definition"]))
            except (KeyError, msgspec.DecodeError):  # no tool, or one that the provider will refuse
                continue
            if limited != came:
                block["tool"] = msgspec.Raw(msgspec.json.encode(offer | {"definition": msgspec.Raw(limited)}))
                is_changed = True
        turn["content"] = msgspec.Raw(msgspec.json.encode(blocks))
    return msgspec.json.encode(turns) if is_changed else messages


def _of_chat(parsed: ChatBody, plugins: frozenset[ToolKind]) -> HostedTools:
    asked = (parsed.web_search_options, parsed.search_parameters, parsed.enable_search)
    if not plugins and not parsed.tools and not any(asked):
        return NO_TOOLS
    kinds = set(plugins)
    if any(map(_is_given, asked)):
        kinds.add("web_search")
    hosted = {name for raw in parsed.tools or () if (name := _hosted_name(raw)) is not None}
    if any(map(_asks_models, hosted)):
        return OTHER_MODELS
    if hosted:
        kinds.add("other")
    return _limited(ABSENT, *kinds) if kinds else NO_TOOLS


def _hosted_name(raw: msgspec.Raw) -> str | None:
    """The type of a tool that the provider runs."""
    kind = _kind(raw).type
    return None if kind == _FUNCTION or (name := _text(kind)) in OF_CALLERS else name


def _kind(raw: msgspec.Raw) -> _Kind:
    try:
        return _KIND.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _Kind()  # not an object: the provider will refuse it


def _of_responses(tools: Sequence[msgspec.Raw], most: msgspec.Raw) -> HostedTools:
    parsed = [_parse_tool(raw) for raw in tools]
    if any(_asks_models(_name(tool)) for tool in parsed):
        return OTHER_MODELS
    kinds: set[ToolKind] = {kind for tool in parsed if (kind := _responses_kind(tool)) is not None}
    return _limited(most, *kinds) if kinds else NO_TOOLS


def _responses_kind(tool: _Tool) -> ToolKind | None:
    """None for tools that the caller runs, and for those billed only by tokens."""
    name = _name(tool)
    if name.startswith("openrouter:"):
        return "other"
    if name.startswith("web_search"):
        return "other" if name.startswith("web_search_preview") else "web_search"
    if name == "shell":
        place = _value(tool.environment)
        is_local = isinstance(place, dict) and cast(dict[str, object], place).get("type") == "local"
        return None if is_local else "other"
    return RESPONSES_KINDS.get(name)


def _of_messages(tools: Sequence[msgspec.Raw]) -> HostedTools:
    parsed = [_parse_tool(raw) for raw in tools]
    if any(_asks_models(_name(tool)) for tool in parsed):
        return OTHER_MODELS
    limits = [_of_message(tool, kind) for tool in parsed if (kind := _messages_kind(tool)) is not None]
    if not limits:
        return NO_TOOLS
    kinds = frozenset[ToolKind]().union(*(one.kinds for one in limits))
    return HostedTools(
        sum(one.calls for one in limits),
        kinds,
        all(one.is_limited for one in limits),
        longer_tokens=sum(one.longer_tokens for one in limits),
    )


def _of_message(tool: _Tool, kind: ToolKind) -> HostedTools:
    limit, most = _limited(tool.max_uses, kind), _count(tool.max_content_tokens)
    if kind != FETCH:
        return limit
    longer = max(0, (most or 0) - TOOL_RESULT_TOKENS)
    is_limited = limit.is_limited and most is not None
    return msgspec.structs.replace(limit, longer_tokens=limit.calls * longer, is_limited=is_limited)


def _messages_kind(tool: _Tool) -> ToolKind | None:
    name = _name(tool)
    if name.startswith("openrouter:"):
        return "other"
    if name.startswith("web_search_"):
        return "web_search"
    return FETCH if name.startswith("web_fetch_") else None


def _name(tool: _Tool) -> str:
    return _text(tool.type)


def _text(raw: msgspec.Raw) -> str:
    text = _value(raw)
    return text if isinstance(text, str) else ""


def _limited(most: msgspec.Raw, *kinds: ToolKind) -> HostedTools:
    calls = _count(most)
    return HostedTools(ASSUMED_CALLS if calls is None else calls, frozenset(kinds), calls is not None)


def _count(raw: msgspec.Raw) -> int | None:
    """None for anything but a whole number, so that a limit of ours replaces it: some parsers take 100.0 or "100"."""
    said = _value(raw)
    return said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None


def _with_limit(raw: bytes) -> bytes:
    tool = _parse_tool(raw)
    kind = _messages_kind(tool)
    edits: dict[str, bytes | None] = {}
    if kind is not None and _count(tool.max_uses) is None:
        edits["max_uses"] = b"%d" % ASSUMED_CALLS
    if kind == FETCH and _count(tool.max_content_tokens) is None:
        edits["max_content_tokens"] = b"%d" % TOOL_RESULT_TOKENS
    return splice(raw, edits) if edits else raw
