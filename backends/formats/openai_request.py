"""Adapts a caller's OpenAI body to one provider by editing its bytes in place. No IO, no clock.

Answers are read in openai.py.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from backends.dialects import PLAIN, Dialect
from backends.errors import UpstreamRejected
from backends.formats.answer_schema import without_value
from backends.formats.cache_breakpoints import mark_breakpoints
from backends.formats.call_ids import with_call_ids
from backends.formats.json_objects import NOT_JSON, objects_of
from backends.formats.json_splice import (
    VALUES,
    Member,
    NotAnObject,
    find_members,
    objects_in,
    require_plain_names,
    splice,
)
from backends.formats.openai import error_body
from backends.formats.past_thinking import (
    OUR_MARKS,
    with_every_thought,
    with_signed_calls,
    without_carried,
    without_our_reasoning,
    without_reasoning,
    without_thinking_parts,
)
from backends.formats.sampling import (
    OPENAI_SAMPLING,
    caches_at_breakpoints,
    effort_for_functions,
    nearest_effort,
    thinks,
)
from backends.formats.stream_options import with_usage
from backends.formats.tool_turns import (
    with_answers,
    with_named_tool_alone,
    with_opening,
    without_thinking_where_forced,
)
from backends.formats.unfinished_turns import with_every_output
from backends.protocol import RESPONSES, Call

_KEPT: Final = ("previous_response_id", "conversation")
"""Fields that refer to what was said before, which its provider keeps."""
_DECIDED_ON: Final = frozenset(
    {
        "background",
        "best_of",
        "cache_salt",
        "conversation",
        "enable_search",
        "fallbacks",
        "functions",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "max_tool_calls",
        "messages",
        "model",
        "n",
        "plugins",
        "previous_response_id",
        "prompt",
        "search_parameters",
        "service_tier",
        "stream",
        "stream_options",
        "tools",
        "web_search_options",
    }
)
_DEVELOPER: Final = b'"developer"'
_SYSTEM: Final = msgspec.Raw(b'"system"')
_NAME: Final = b'"name"'
_ANY: Final = b'"any"'
_REQUIRED: Final = b'"required"'
"""What Mistral means by _ANY and takes too, as everybody else does."""
_MARK: Final = b'"cache_control"'
_FUNCTION: Final = b'"function"'
_MARKS: Final = frozenset({"cache_control"})
_HAS_USAGE_CHUNK: Final = frozenset({"chat.completions", "completions"})


def build_body(call: Call, dialect: Dialect = PLAIN) -> bytes:
    """The caller's JSON with our model, our cache salt and a request for usage, in the provider's dialect. Everything
    else stays as sent, except what the dialect demands: reasoning removed or added, cache marks removed or replaced,
    ids of calls and the `developer` role replaced, and Hugging Face's name for a schema.

    A renamed field's value moves unless the caller gave both. A caller's own `cache_salt` is removed, since it could
    share another tenant's prefix cache. So is, at an engine of ours, a `priority` below the default 0, which would
    overtake everybody else; one above 0 (less important) is kept.
    Raises UpstreamRejected, as `members_of` does.
    """
    members = members_of(call.body)
    try:
        edits: dict[str, bytes | None] = {
            "model": msgspec.json.encode(call.upstream_model),
            "cache_salt": msgspec.json.encode(call.cache_salt) if call.cache_salt is not None else None,
        }
        priority = members.get("priority") if call.cache_salt is not None else None
        if priority and priority.of(call.body).startswith(b"-"):
            edits["priority"] = None
        for theirs, ours in dialect.renames.items():
            if member := members.get(theirs):
                edits[theirs] = None
                told = members.get(ours)
                if told is None or told.of(call.body) == b"null":
                    edits[ours] = member.of(call.body)
        if (choice := members.get("tool_choice")) and choice.of(call.body) == _ANY:
            edits["tool_choice"] = _REQUIRED
        if form := members.get("response_format"):
            edits["response_format"] = without_value(form.of(call.body))
        if (effort := members.get("reasoning_effort")) and dialect.efforts:
            asked = effort.of(call.body).strip(b'"').decode("utf-8", "replace")
            if (told := dialect.efforts.get(asked)) is not None:
                edits["reasoning_effort"] = b'"%b"' % told.encode()
        if (tier := members.get("service_tier")) and dialect.tiers:
            asked = tier.of(call.body).strip(b'"').decode("utf-8", "replace")
            told = dialect.tiers.get(asked) if call.operation == "chat.completions" else None
            edits["service_tier"] = None if told is None else b'"%b"' % told.encode()
        if dialect.thinks_unforced or (dialect.names_no_call and "k2." in call.upstream_model):
            edits |= without_thinking_where_forced(call.body, members)
        elif dialect.names_no_call and "k3" in call.upstream_model:
            edits |= with_named_tool_alone(call.body, members)
        if dialect.models_think:
            edits |= _while_it_thinks(call, members)
        if call.operation == "chat.completions" and (messages := members.get("messages")):
            came = messages.of(call.body)
            if (said := _as_told(came, dialect, reasons=call.reasons)) != came:
                edits["messages"] = said
        if dialect.refuses_cache_marks and call.operation == "chat.completions" and _MARK in call.body:
            if dialect.models_think and caches_at_breakpoints(call.upstream_model):
                edits |= _with_breakpoints(call.body, members, edits)
            edits |= _without_marks(call.body, members, edits)
        has_ours = call.operation in RESPONSES and any(mark in call.body for mark in OUR_MARKS)
        if has_ours and (items := members.get("input")):
            edits["input"] = without_our_reasoning(items.of(call.body))
        if dialect.instructs_once and call.operation in RESPONSES:
            edits |= _instructed_in_input(call.body, members, edits)
        if call.is_stream and dialect.asks_for_usage and call.operation in _HAS_USAGE_CHUNK:
            options = members.get("stream_options")
            edits["stream_options"] = with_usage(options.of(call.body) if options else b"null")
        if dialect.lacks or dialect.withheld:  # last, to override edits of these fields
            edits |= dict.fromkeys((dialect.lacks | dialect.withheld) & members.keys())
        if dialect.thinkers_lack and call.reasons:
            edits |= dict.fromkeys(dialect.thinkers_lack & members.keys())
        return splice(call.body, edits, members)
    except NotAnObject as error:  # in `stream_options`
        raise _no_object(error) from error


def without_past_reasoning(body: bytes) -> bytes:
    """A request of the Responses API without the reasoning of earlier turns; the same bytes if it has none."""
    members = members_of(body)
    items = members.get("input")
    return splice(body, {"input": without_reasoning(items.of(body))}, members) if items else body


def with_every_output_of(body: bytes) -> bytes:
    """A request of the Responses API in which each call has a result; the same bytes if each has one. What its provider
    keeps of the conversation is not known here."""
    members = members_of(body)
    items = members.get("input")
    kept = [one for name in _KEPT if (one := members.get(name)) is not None]
    is_whole = all(one.of(body) == b"null" for one in kept) and b'"item_reference"' not in body
    mended = with_every_output(items.of(body), is_whole=is_whole) if items else b""
    return splice(body, {"input": mended}, members) if items else body


def members_of(body: bytes) -> dict[str, Member]:
    """The members of a caller's body. Raises UpstreamRejected unless it is one JSON object with distinct keys, or if it
    spells one of _DECIDED_ON in another case."""
    try:
        members = find_members(body)
        require_plain_names(members, _DECIDED_ON)
    except NotAnObject as error:
        raise _no_object(error) from error
    return members


def is_in_own_words(call: Call, model: object) -> bool:
    """Whether the caller uses the provider's own format and its own name for the model: then the request is passed on
    as it is, and the provider decides whether it is valid."""
    return model == call.upstream_model and not call.is_translated


def _no_object(error: NotAnObject) -> UpstreamRejected:
    body = error_body(str(error), kind="invalid_request_error", code="invalid_json")
    return UpstreamRejected(str(error), status=400, body=body)


def _as_told(messages: bytes, dialect: Dialect, *, reasons: bool) -> bytes:
    said = _without(dialect.message_lacks, without_carried(messages))
    said = _without_in("tool_calls", dialect.call_lacks, said)
    if not (dialect.thinks_in_parts and reasons):
        said = without_thinking_parts(said)
    if dialect.needs_thoughts:
        said = with_every_thought(said)
    if dialect.needs_signatures:
        said = with_signed_calls(said)
    if dialect.needs_answers:
        said = with_answers(said)
    if dialect.needs_opening:
        said = with_opening(said)
    if dialect.call_id:
        said = with_call_ids(said, dialect.call_id)
    if dialect.names_users_alone and _NAME in said:
        said = _with_users_named(said)
    return said if dialect.takes_developer or said.find(_DEVELOPER) < 0 else _of_the_system(said)


def _with_users_named(messages: bytes) -> bytes:
    """The messages with `name` removed from all but users'; the same bytes if no other message has one."""
    found = objects_in(messages)
    others = [message for message in found if "name" in message and bytes(message.get("role", b"")) != b'"user"']
    for message in others:
        del message["name"]
    return msgspec.json.encode(found) if others else messages


def _of_the_system(messages: bytes) -> bytes:
    """The messages with the role `developer` replaced by `system`; the same bytes if there is none."""
    found = objects_in(messages)
    theirs = [message for message in found if bytes(message.get("role", b"")) == _DEVELOPER]
    for message in theirs:
        message["role"] = _SYSTEM
    return msgspec.json.encode(found) if theirs else messages


def _while_it_thinks(call: Call, members: Mapping[str, Member]) -> dict[str, bytes | None]:
    """Edits that remove what an OpenAI model rejects when it reasons, and turn reasoning off where a chat's functions
    require that. None for a caller who uses OpenAI's own name for the model: OpenAI answers for itself."""

    def said(name: str) -> object:
        member = members.get(name)
        try:
            return None if member is None else msgspec.json.decode(member.of(call.body))
        except NOT_JSON:  # its provider's to refuse
            return None

    if is_in_own_words(call, said("model")):
        return {}
    if call.operation in RESPONSES:
        reasoning = said("reasoning")
        effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    else:
        effort = said("reasoning_effort")
    asked = told = effort if isinstance(effort, str) else None
    tools = members.get("tools")
    if call.operation == "chat.completions":
        told = nearest_effort(call.upstream_model, asked)
        if tools and _FUNCTION in tools.of(call.body):
            told = effort_for_functions(call.upstream_model, told)
    refused = OPENAI_SAMPLING & members.keys() if thinks(call.upstream_model, told) else ()
    return dict.fromkeys(refused) | (
        {} if told == asked else {"reasoning_effort": msgspec.json.encode(told) if told else None}
    )


def _without(names: frozenset[str], objects: bytes) -> bytes:
    """The list of objects without these members; the same bytes if none has one, or if it is no such list."""
    if not names or not any(b'"%b"' % name.encode() in objects for name in names):
        return objects
    found = objects_in(objects)
    if names.isdisjoint(name for fields in found for name in fields):
        return objects
    return msgspec.json.encode([{name: fields[name] for name in fields if name not in names} for fields in found])


def _without_in(member: str, names: frozenset[str], messages: bytes) -> bytes:
    """Like `_without`, for the objects in a list inside each message: its parts or tool calls."""
    if not names or not any(b'"%b"' % name.encode() in messages for name in names):
        return messages
    found = objects_in(messages)
    changed = False
    for message in found:
        if (inner := message.get(member)) is not None and (kept := _without(names, bytes(inner))) != bytes(inner):
            message[member] = msgspec.Raw(kept)
            changed = True
    return msgspec.json.encode(found) if changed else messages


def _without_marks(body: bytes, members: Mapping[str, Member], edits: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """A chat's messages and tools without Anthropic's cache marks."""
    kept: dict[str, bytes] = {}
    for name in members.keys() & {"messages", "tools"}:
        objects = edits.get(name, members[name].of(body))
        if objects is None:
            continue
        for inner in ("content", "tool_calls"):
            objects = _without_in(inner, _MARKS, objects)
        kept[name] = _without(_MARKS, objects)
    return kept


def _with_breakpoints(
    body: bytes, members: Mapping[str, Member], edits: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    member = members.get("messages")
    said = edits.get("messages") or (member.of(body) if member else b"")
    try:
        messages = msgspec.json.decode(said)
    except NOT_JSON:  # its provider's to refuse
        return {}
    return {"messages": msgspec.json.encode(messages)} if mark_breakpoints(objects_of(messages)) else {}


def _instructed_in_input(
    body: bytes, members: Mapping[str, Member], edits: Mapping[str, bytes | None]
) -> dict[str, bytes | None]:
    """Edits that move a continued response's `instructions` into its input, as a system message."""

    def said(name: str) -> bytes:
        member = members.get(name)
        return member.of(body) if member else b"null"

    instructions, items = said("instructions"), edits.get("input") or said("input")
    if instructions[:1] != b'"' or said("previous_response_id") == b"null" or items[:1] not in (b'"', b"["):
        return {}
    if items.startswith(b'"'):
        items = b'[{"role":"user","content":%b}]' % items
    told = [b'{"role":"system","content":%b}' % instructions, *map(bytes, VALUES.decode(items))]
    return {"instructions": None, "input": b"[%b]" % b",".join(told)}
