"""View of a call in Gemini's format for the decision; also limits its answer's length to what is held. Pure.

The model, and whether it streams, are in the path. Only fields that the gateway uses are read; the provider validates
the rest.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from backends.endpoints.content_format import tier_of
from backends.formats.json_objects import Fields, objects_of, part_of, text_of
from backends.formats.json_splice import find_members, splice
from backends.formats.proto_json import NamedTwice, many_of, member_of, members_of, messages_of, whole_number
from backends.protocol import COUNT_OF_CONTENT
from gateway.errors import InvalidRequest
from gateway.pricing.price import ToolKind
from gateway.request.encodings import unreadable
from gateway.request.field_checks import checked_choices, checked_limit
from gateway.request.hosted_tools import ASSUMED_CALLS, NO_TOOLS, OTHER_MODELS, HostedTools
from gateway.request.many_values import require_bearable
from gateway.request.run import Incoming
from gateway.request.turns import conversation_of, prefixes, reuse_of
from gateway.request.view import TOKENS_PER_IMAGE, RequestView, estimate_tokens, needs_of

ROLES: Final = {"model": "assistant", "function": "tool"}
OF_CALLERS: Final = frozenset({"functionDeclarations", "computerUse"})
"""Tools that the caller runs."""
TOOL_KINDS: Final[dict[str, ToolKind]] = {
    "googleSearch": "web_search",
    "googleSearchRetrieval": "web_search",
    "urlContext": "free",
    "codeExecution": "free",
}
"""Tools that Google runs. Answers do not report the cost of any others."""
SCHEMAS: Final = ("responseSchema", "responseJsonSchema")
CONFIGS: Final = ("generationConfig", "generation_config")
LIMITS: Final = ("maxOutputTokens", "max_output_tokens")


def view_content(incoming: Incoming) -> RequestView:
    """Raises InvalidRequest naming the field that is wrong."""
    require_bearable(incoming.body)
    try:
        asked = _asked(incoming.body)
        if incoming.operation == COUNT_OF_CONTENT and (inner := member_of(asked, "generateContentRequest")):
            asked = inner
        return _view(asked, incoming)
    except NamedTwice as error:
        raise InvalidRequest(f"{error}.") from error


def limited_to(body: bytes, tokens: int) -> bytes:
    """The body with its answer limited to this many tokens. Only for bodies without a limit. Raises NotAnObject."""
    members = find_members(body)
    name = next((one for one in CONFIGS if one in members), CONFIGS[0])
    came = members.get(name)
    config = b"{}" if came is None or body[came.start : came.end] == b"null" else body[came.start : came.end]
    limit = next((one for one in LIMITS if one in find_members(config)), LIMITS[0])
    return splice(body, {name: splice(config, {limit: b"%d" % tokens})}, members)


def _asked(body: bytes) -> Fields:
    try:
        fields = msgspec.json.decode(body)
        if not isinstance(fields, dict):
            raise InvalidRequest("The body is not a JSON object.")
        return members_of(fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(body, error) from error


def _view(asked: Fields, incoming: Incoming) -> RequestView:
    contents = messages_of(asked, "contents")
    if not contents:
        raise InvalidRequest("contents: needs at least one.", param="contents")
    config, tools = _object(asked, "generationConfig"), messages_of(asked, "tools")
    system = _texts(messages_of(_object(asked, "systemInstruction"), "parts"))
    turns = [("system", "\n".join(system))] if system else []
    parts: list[Fields] = []
    for content in contents:
        said = messages_of(content, "parts")
        turns += _turns(str(content.get("role") or "user"), said)
        parts += said
    media = list(_media(parts))
    images = sum(_kind(one) == "image" for one in media)
    declared = [raw for tool in tools for raw in objects_of(many_of(tool.get("functionDeclarations")))]
    raw_tools = [msgspec.Raw(msgspec.json.encode(tool)) for tool in tools]
    tool_tokens = sum(len(bytes(raw)) for raw in raw_tools) // 4
    called = sum(len(msgspec.json.encode(one)) for part in parts if (one := part.get("functionCall"))) // 4
    schemas = [config[name] for name in SCHEMAS if name in config]
    schema_tokens = sum(len(msgspec.json.encode(one)) for one in schemas) // 4
    wants_json = "json" in (text_of(config, "responseMimeType") or "")
    is_count = incoming.operation == COUNT_OF_CONTENT
    is_stream = incoming.is_stream and not is_count
    known = prefixes(turns, raw_tools)
    return RequestView(
        operation=incoming.operation,
        model=incoming.model,
        is_stream=is_stream,
        max_output_tokens=None if is_count else checked_limit("maxOutputTokens", _count(config, "maxOutputTokens")),
        choices=checked_choices("candidateCount", _count(config, "candidateCount")),
        needs=needs_of(
            streaming=is_stream,
            tools=bool(tools),
            json_schema=wants_json and bool(schemas),
            vision=images > 0,
            audio=any(_kind(one) == "audio" for one in media),
        ),
        conversation=conversation_of(turns, tools=len(declared), images=images, wants_json=wants_json),
        input_tokens=estimate_tokens([text for _, text in turns])
        + 4 * len(turns)
        + tool_tokens
        + called
        + schema_tokens
        + images * TOKENS_PER_IMAGE,
        service_tier=tier_of(asked),
        writes_cache=False,
        has_media=bool(media) or bool(asked.get("cachedContent")) or _draws(config),
        hosted_tools=OTHER_MODELS if config.get("routingConfig") else _hosted(tools),  # it names a model
        image_bytes=(image_bytes := sum(_length(one) for one in media if _kind(one) == "image")),
        body_bytes=len(incoming.body) - image_bytes,
        is_open_ended=bool(asked.get("cachedContent")) or any(_kind(one) != "image" for one in media),
        prefixes=known,
        reuse=reuse_of(turns, known, tool_tokens, b"" if _is_free_choice(asked) else b"forced"),
    )


def _object(asked: Fields, name: str) -> Fields:
    if not isinstance(asked.get(name), dict | None):
        raise InvalidRequest(f"{name}: must be an object.", param=name)
    return member_of(asked, name)


def _turns(role: str, parts: list[Fields]) -> Iterator[tuple[str, str]]:
    """Function results come first, as a turn of their own."""
    given = [part_of(part_of(part, "functionResponse"), "response") for part in parts if "functionResponse" in part]
    texts = _texts(parts)
    if given:
        yield "tool", "\n".join(msgspec.json.encode(one).decode() for one in given)
    if texts or not given:
        yield ROLES.get(role, role), "\n".join(texts)


def _texts(parts: list[Fields]) -> list[str]:
    return [text for part in parts if (text := text_of(part, "text"))]


def _media(parts: list[Fields]) -> Iterator[Fields]:
    """Images, audio and other media, including those in function results."""
    for part in parts:
        for name in ("inlineData", "fileData"):
            if found := member_of(part, name):
                yield found
        yield from _media(messages_of(member_of(part, "functionResponse"), "parts"))


def _kind(media: Fields) -> str:
    return (text_of(media, "mimeType") or "").lower().partition("/")[0]


def _length(media: Fields) -> int:
    return len(text_of(media, "data") or "")


def _count(config: Fields, name: str) -> int | None:
    """0 means the same as absent."""
    given = config.get(name)
    if given is not None and whole_number(given) is None:
        raise InvalidRequest(f"{name}: must be an integer.", param=f"generationConfig.{name}")
    return whole_number(given) or None


def _draws(config: Fields) -> bool:
    """Whether the answer may have more than text."""
    wanted = many_of(config.get("responseModalities"))
    return isinstance(wanted, list) and any(str(one).upper() != "TEXT" for one in wanted)


def _hosted(tools: list[Fields]) -> HostedTools:
    names = {name for tool in tools for name in tool} - OF_CALLERS
    kinds = frozenset[ToolKind](TOOL_KINDS.get(name, "other") for name in names)
    return HostedTools(ASSUMED_CALLS, kinds, is_limited=False) if kinds else NO_TOOLS


def _is_free_choice(asked: Fields) -> bool:
    config = member_of(member_of(asked, "toolConfig"), "functionCallingConfig")
    return (text_of(config, "mode") or "auto").lower() in ("auto", "mode_unspecified")
