"""Rewrites chats for servers that refuse their messages, as the chat templates of open models do: Qwen3.5 and later a
second system message, Mistral's a user's after a tool's result or a call's id of another form, others two messages of
one side in a row, a call cut off or an image in a result. Pure.

Agents send such chats with every request: Codex a developer's message beside its instructions, Claude Code reminders,
Copilot screenshots.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import groupby
from typing import Final, cast

import msgspec

from backends.formats.call_ids import for_mistral, with_call_ids, with_distinct_ids
from backends.formats.image_types import REFUSED as OF_ANOTHER_TYPE
from backends.formats.image_types import with_true_types
from backends.formats.json_objects import without_escapes
from backends.formats.json_splice import MEMBERS, NotAnObject, find_members, objects_in, splice
from backends.formats.past_thinking import UNREADABLE_SIGNATURE, with_every_thought, with_unknown_signatures
from backends.formats.refused_chats import chat_mend_for
from backends.formats.tool_turns import OPENING, with_answers
from backends.formats.unfinished_turns import with_every_result, without_empty_answers, without_empty_messages

Message = dict[str, msgspec.Raw]


class _Text(msgspec.Struct):
    text: str


Mend = Callable[[bytes], bytes]
"""From a chat's `messages` to those that the server takes; the same bytes if there is nothing to change."""

_SYSTEM, _USER, _TOOL = msgspec.Raw(b'"system"'), msgspec.Raw(b'"user"'), msgspec.Raw(b'"tool"')
_ASSISTANT: Final = msgspec.Raw(b'"assistant"')
_OPENED: Final[Message] = {"role": _USER, "content": msgspec.Raw(msgspec.json.encode(OPENING))}
_INSTRUCTS: Final = (_SYSTEM, msgspec.Raw(b'"developer"'))
_CONTENT: Final = msgspec.json.Decoder(str | list[msgspec.Raw] | None)
_SEE: Final = "See the next message."
_NO_ARGUMENTS: Final = msgspec.Raw(b'"{}"')
_NO_TEXT: Final = msgspec.Raw(b'""')
_TEXT: Final = msgspec.json.Decoder(_Text)
_OPEN, _CLOSE = "<system>\n", "\n</system>"


def with_system_first(messages: bytes) -> bytes:
    """The leading system messages as one. Later ones become a user's where they stand: at the front they would end the
    server's prefix cache there with each turn that adds one. None comes between a call and its result."""
    found = objects_in(messages)
    first = next((place for place, one in enumerate(found) if one.get("role") not in _INSTRUCTS), len(found))
    late = [one for one in found[first:] if one.get("role") in _INSTRUCTS]
    if first < 2 and not late:
        return messages
    made: list[Message] = []
    waiting: list[Message] = []
    for message in found[first:]:
        if message.get("role") in _INSTRUCTS:
            waiting.append({"role": _USER, "content": _joined([_text(_OPEN), message, _text(_CLOSE)], "")})
            continue
        if message.get("role") != _TOOL:
            made += waiting
            waiting = []
        made.append(message)
    head = [{"role": _SYSTEM, "content": _joined(found[:first], "\n\n")}] if first else []
    return msgspec.json.encode([*head, *made, *waiting])


def alternating(messages: bytes) -> bytes:
    """One system message, messages in a row of a user's or of the model's as one, and a user's first."""
    found = objects_in(with_system_first(messages))
    made: list[Message] = []
    for is_told, run in groupby(found, _speaker):
        said = list(run)
        made += [said[0] | {"content": _joined(said, "\n\n")}] if is_told and len(said) > 1 else said
    first = next((place for place, one in enumerate(made) if one.get("role") not in _INSTRUCTS), len(made))
    if made[first:] and _speaker(made[first]) == _ASSISTANT:
        made.insert(first, _OPENED)
    return with_answers(messages if made == objects_in(messages) else msgspec.json.encode(made))


def _speaker(message: Message) -> bytes | None:
    """Who only says something: a user, or the model without calls. None for other messages."""
    role = message.get("role")
    has_calls = bytes(message.get("tool_calls", b"[]")) not in (b"[]", b"null")
    return role if role == _USER or (role == _ASSISTANT and not has_calls) else None


def without_system(messages: bytes) -> bytes:
    """System messages as the beginning of what the user says."""
    found = objects_in(with_system_first(messages))
    if not found or found[0].get("role") not in _INSTRUCTS:
        return messages
    return alternating(msgspec.json.encode([found[0] | {"role": _USER}, *found[1:]]))


def with_a_user(messages: bytes) -> bytes:
    """A user's message in a chat without any: the last system message if nothing else was said, or one before it."""
    found = objects_in(messages)
    if not found or any(one.get("role") == _USER for one in found):
        return messages
    first = next((place for place, one in enumerate(found) if one.get("role") not in _INSTRUCTS), len(found))
    if first == len(found):
        return msgspec.json.encode([*found[:-1], found[-1] | {"role": _USER}])
    return msgspec.json.encode([*found[:first], _OPENED, *found[first:]])


def with_text_results(messages: bytes) -> bytes:
    """Tools' results as texts. Their images and other parts become a user's message after them, as the translation from
    Anthropic's format does it."""
    made: list[Message] = []
    shown: list[msgspec.Raw] = []
    is_changed = False
    for message in objects_in(messages):
        is_result = message.get("role") == _TOOL
        if shown and not is_result:
            made.append(_shown(shown))
            shown = []
        content = _CONTENT.decode(message.get("content", b"null")) if is_result else None
        if isinstance(content, list):
            texts, others = _texts_in(content)
            shown += others
            said = "\n".join(texts) or (_SEE if others else "")
            message["content"] = msgspec.Raw(msgspec.json.encode(said))
            is_changed = True
        made.append(message)
    if not is_changed:
        return messages
    return msgspec.json.encode([*made, _shown(shown)] if shown else made)


def with_plain_texts(messages: bytes) -> bytes:
    """Contents as texts, where they are lists of nothing else, or calls have none beside them."""
    found = objects_in(with_text_results(messages))
    for message in found:
        content = _CONTENT.decode(message.get("content", b"null"))
        texts, others = _texts_in(content) if isinstance(content, list) else ([], [])
        if content is None and "tool_calls" in message:
            message["content"] = _NO_TEXT
        elif texts and not others:
            message["content"] = msgspec.Raw(msgspec.json.encode("\n".join(texts)))
    return messages if found == objects_in(messages) else msgspec.json.encode(found)


def _shown(parts: list[msgspec.Raw]) -> Message:
    return {"role": _USER, "content": msgspec.Raw(msgspec.json.encode(parts))}


def _texts_in(content: list[msgspec.Raw]) -> tuple[list[str], list[msgspec.Raw]]:
    """(the texts, the other parts)."""
    is_text = [bytes(MEMBERS.decode(part).get("type", b"")) == b'"text"' for part in content]
    texts = [_TEXT.decode(part).text for part, is_one in zip(content, is_text, strict=True) if is_one]
    return texts, [part for part, is_one in zip(content, is_text, strict=True) if not is_one]


def with_readable_calls(messages: bytes) -> bytes:
    """Past calls with no arguments where theirs are no JSON object, as an answer that was cut off leaves them: what
    follows tells the model, and a server that reads them would refuse the conversation for ever."""
    if b'"tool_calls"' not in messages:
        return messages
    found = objects_in(messages)
    is_changed = False
    for message in found:
        calls = objects_in(message.get("tool_calls", b"[]"))
        broken = [call for call in calls if not _is_readable(_function_of(call).get("arguments", b"{}"))]
        for call in broken:
            call["function"] = msgspec.Raw(msgspec.json.encode(_function_of(call) | {"arguments": _NO_ARGUMENTS}))
        if broken:
            message["tool_calls"] = msgspec.Raw(msgspec.json.encode(calls))
            is_changed = True
    return msgspec.json.encode(found) if is_changed else messages


def with_mistrals_ids(messages: bytes) -> bytes:
    """Ids of calls as the templates of Mistral's models want them; other models and clients give longer ones."""
    return with_call_ids(messages, for_mistral)


def in_order(messages: bytes) -> bytes:
    """All that Z.ai may mean when it says no more than that it takes no such messages: an empty one, a result or a call
    alone, nobody's question."""
    return with_every_result(without_empty_messages(with_a_user(messages)))


def _function_of(call: Message) -> Message:
    return MEMBERS.decode(call.get("function", b"{}"))


def _is_readable(arguments: bytes) -> bool:
    said = msgspec.json.decode(arguments)
    try:
        return isinstance(msgspec.json.decode(said) if isinstance(said, str) else said, dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False


OF_ONE_ID: Final = re.compile(
    rb"ids must be unique|toolUse blocks at \S{1,40} contain duplicate ids|duplicate value for 'tool_call_id'",
    re.IGNORECASE,
)
"""How Anthropic, Bedrock and OpenAI reject two calls of one id, as some servers number theirs anew in each turn."""
_MENDS: Final[Sequence[tuple[re.Pattern[bytes], Mend]]] = (
    (
        re.compile(
            rb"must be followed by tool messages|insufficient tool messages|not the same number of function calls"
            rb"|must be a response to a prec|ids were found without|unexpected `?tool_use_id"
            rb"|number of function response parts|no previous assistant message with a tool call"
            rb"|continue an assistant message that contains tool calls|tool call and result not match"
            rb"|tool result's tool id\([^)\"]{0,99}\) not found|tool call result does not follow tool call",
            re.IGNORECASE,
        ),
        with_every_result,
    ),
    (
        re.compile(
            rb"content type: (?:<|\\u003c)nil|must contain either 'content' or 'tool_calls'|tool_calls'?: empty array"
            rb"|'assistant' must not be empty",
            re.IGNORECASE,
        ),
        without_empty_answers,
    ),
    (re.compile(rb"chat content is empty|, messages must not be empty"), without_empty_messages),
    (re.compile(rb'"code"\s*:\s*"121[34]"'), in_order),
    (
        re.compile(rb"reasoning_content is missing|reasoning_content`? in the thinking mode must be passed back"),
        with_every_thought,
    ),
    (
        re.compile(rb"call ids should be alphanumeric|must be a-z, a-z, 0-9", re.IGNORECASE),
        with_mistrals_ids,
    ),
    (
        re.compile(
            rb"(?:value|content) must be a string|expected a string|expected one of: \['str'\], got list"
            rb"|cannot unmarshal array into Go struct field [\w.]{1,60}\.content of type string"
            rb"|type mismatch of '/messages/\d+/content'|required properties at '/messages/\d+' are 'role,content'"
            rb"|can only concatenate str \(not|'dict object' has no attribute 'content'"
            rb"|AssistantMessage', 'content'\), 'msg': 'Input should be a valid string', 'input': None"
            rb"|\bbody\.messages\.\d+\.content: Input should be a valid string",
            re.IGNORECASE,
        ),
        with_plain_texts,
    ),
    (
        re.compile(
            rb"role 'tool'[^\"]{0,20} contains an image|validation errors? for ToolMessage|valid only for user messages"
            rb"|images are supported in user messages|uploaded an unsupported image"
            rb"|tool messages?[^\"]{0,60}(?:only|supports?)[^\"]{0,20} text",
            re.IGNORECASE,
        ),
        with_text_results,
    ),
    (UNREADABLE_SIGNATURE, with_unknown_signatures),
    (OF_ANOTHER_TYPE, with_true_types),
    (OF_ONE_ID, with_distinct_ids),
    (
        re.compile(rb"(?:must|should) alternate|should be alternating|2 or more assistant messages", re.IGNORECASE),
        alternating,
    ),
    (re.compile(rb"role '?user'? after role '?tool", re.IGNORECASE), with_answers),
    (
        re.compile(
            rb"arguments.{0,60}\bjson\b|invalid function arguments|has no attribute 'items'|item pairs from a mapping"
            rb"|filter 'items' for type|hint: 'items'|invalid tool call arguments"
            rb"|(?:expecting|unterminated string|extra data|invalid [a-z\\ ]{1,20})[^:]{0,60}: line \d+ column",
            re.IGNORECASE,
        ),
        with_readable_calls,
    ),
    (re.compile(rb"no user query found", re.IGNORECASE), with_a_user),
    (re.compile(rb"system role not supported|developer instruction is not enabled", re.IGNORECASE), without_system),
    (
        re.compile(
            rb"system messages? (?:must|should|can only) be|invalid chat setting|invalid message role: system"
            rb"|role '?system'? after role|got '?system|exception of an initial optional system",
            re.IGNORECASE,
        ),
        with_system_first,
    ),
)
"""The words of templates of Gemma, Mistral, Qwen and others, of mistral-common, MiniMax, Perplexity, and Gemini for
Gemma; on calls those of DashScope, llama.cpp, MiniMax, SGLang and vLLM; on results those of DeepSeek, Groq, MiniMax,
Mistral and OpenAI; on texts in lists those of Cloudflare, DeepSeek, Groq, llama-cpp-python, SambaNova and servers in
Go; on thinking those of DeepSeek and Moonshot, whose models others serve too."""


def mend_for(refusal: bytes) -> Mend | None:
    """What changes a chat into one that a server takes which refused it with this error."""
    return next((mend for words, mend in _MENDS if words.search(refusal)), None)


def may_quote(refusal: bytes, body: bytes) -> bool:
    """Whether the words of a refusal that tell of a mend stand in the chat too: the server may only have repeated them,
    and what it takes from this caller says nothing about others."""
    said = without_escapes(body)
    return any(words.search(refusal) and words.search(said) for words, _ in _MENDS)


def mended_chat(body: bytes, refusal: bytes) -> bytes | None:
    """A chat that was refused, changed so that it may be taken; None if it cannot be."""
    mend, whole = mend_for(refusal), chat_mend_for(refusal)
    try:
        kept = mended(body, (mend,)) if mend else whole(body) if whole else body
    except NotAnObject:  # refused by us
        return None
    return None if kept == body else kept


def mended(body: bytes, mends: Iterable[Mend]) -> bytes:
    """A chat with its messages changed; the same bytes if there is nothing to change."""
    members = find_members(body)
    messages = members.get("messages")
    if messages is None:
        return body
    came = messages.of(body)
    try:
        said = reduce(lambda text, mend: mend(text), mends, came)
    except msgspec.DecodeError:  # its provider's to refuse
        return body
    return body if said == came else splice(body, {"messages": said}, members)


def _text(said: str) -> Message:
    return {"content": msgspec.Raw(msgspec.json.encode(said))}


def _joined(messages: Iterable[Message], between: str) -> msgspec.Raw:
    """The contents of messages as one: a text if all are, else a list of parts."""
    contents = [_CONTENT.decode(one.get("content", b'""')) for one in messages]
    if all(isinstance(content, str) for content in contents):
        return msgspec.Raw(msgspec.json.encode(between.join(cast(list[str], contents))))
    lists = ([{"type": "text", "text": one}] if isinstance(one, str) else one or [] for one in contents)
    return msgspec.Raw(msgspec.json.encode([part for parts in lists for part in parts]))
