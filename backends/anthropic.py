"""Adapter for Anthropic's Messages API: chats are translated, calls in its own format pass through untouched."""

import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from backends.endpoints.messages_events import in_messages_shape, messages_error
from backends.errors import UpstreamRejected
from backends.formats import efforts
from backends.formats.anthropic import AnthropicStreamReader, openai_error, read_message
from backends.formats.anthropic_messages import NativeMessagesReader, read_native_message
from backends.formats.anthropic_request import build_messages_body
from backends.formats.call_ids import for_anthropic, with_call_ids, with_distinct_ids
from backends.formats.chat_fields import EFFORTS, untranslatable
from backends.formats.chat_view import parse_chat
from backends.formats.efforts import offered_effort
from backends.formats.image_types import REFUSED as OF_ANOTHER_TYPE
from backends.formats.image_types import with_true_types
from backends.formats.input_tokens import read_count
from backends.formats.json_objects import decode_object, text_of
from backends.formats.json_splice import NotAnObject, find_members, require_plain_names, splice
from backends.formats.past_thinking import UNSIGNED_MARK, without_thinking, without_unsigned
from backends.formats.refused_thinking import may_be_repeated, refused_kind, turned_off, without_kinds
from backends.formats.sampling import CLAUDE_SAMPLING, claude_effort, is_claude, is_older_claude
from backends.formats.strict_turns import OF_ONE_ID, mended_chat
from backends.formats.unfinished_turns import without_empty_texts
from backends.formats.unknown_fields import (
    BETA,
    says_unknown,
    unknown_fields,
    with_betas,
    without_fields,
    without_unknown_betas,
    without_unknown_fields,
)
from backends.http_backend import Exchange, HttpBackend, answers_ok, join_url
from backends.learned import Learned, OfTools, of_tools
from backends.protocol import VENDOR_HEADERS, BackendHealth, Call, Operation, Reply

API_VERSION: Final = "2023-06-01"
NATIVE_PATHS: Final[Mapping[Operation, str]] = {
    "messages": "messages",
    "messages.count_tokens": "messages/count_tokens",
}
"""Calls in Anthropic's own format."""
_UNREADABLE: Final = re.compile(
    rb"(?:signature|data)[^\"]{0,9} in [^\"]{0,12}thinking|thinking[^\"]{0,9}blocks in the latest assistant message can"
)
"""How Anthropic rejects thinking of another provider, or of a conversation or an answer that has changed since."""
_MISSED: Final = re.compile(
    rb"thinking mode must be passed back|reasoning_content is missing|or `redacted_thinking`, but"
)
"""How DeepSeek and Moonshot reject a conversation with tool calls that lacks its thinking, which clients drop if it is
not signed, or which another model did; and Anthropic one that ends in such a call and its result, if it is to think."""
_TOO_STRICT: Final = re.compile(rb"schemas? (?:contains|is) too|tools\.\d+\.custom: ", re.IGNORECASE)
"""How Anthropic rejects strict tools with too many members that may be missing or are of several types, or with a
schema that refers to itself."""
_EMPTY: Final = re.compile(rb"text content blocks must |must have non-empty content|must not be empty")
"""How Anthropic, Bedrock and Moonshot reject texts of nothing, which other models' answers leave in a conversation."""
_MOST_MENDS: Final = 8
_DECIDED_ON: Final = frozenset(
    {"fallbacks", "inference_geo", "max_tokens", "messages", "model", "models", "plugins", "preset", "speed", "stream"}
    | {"system", "tools"}
)
"""Fields whose spelling is checked, since other servers than Anthropic's take its format too."""


_Asked = tuple[Operation, str, str | None]
"""Operation, since counts are stricter than messages, model, and betas, since with them come fields."""


class _Known(NamedTuple):
    """What a server does not know: fields. And what is left of the betas that a client names."""

    fields: frozenset[str]
    betas: str | None


class AnthropicBackend(HttpBackend):
    """One endpoint; `base_url` includes the version, as in `https://api.anthropic.com/v1`."""

    def __init__(self, name: str, base_url: str, api_key: str | None) -> None:
        headers = {"anthropic-version": API_VERSION} | ({"x-api-key": api_key} if api_key else {})
        super().__init__(name, base_url, headers)
        self._unknown = Learned[_Asked, _Known]()
        self._efforts = Learned[tuple[Operation, str, str], str]()  # by model and what is asked for
        self._thinking = Learned[tuple[Operation, str], frozenset[str]]()  # kinds that a model refuses
        self._too_strict = Learned[OfTools | None, bool]()

    async def open(self, call: Call) -> Reply:
        if call.operation in NATIVE_PATHS:
            return await self._open_native(call)
        if call.operation != "chat.completions":
            raise untranslatable("operation", f"{self.name} does not offer {call.operation}")
        try:
            return await self._open_chat(call)
        except UpstreamRejected as refusal:
            if (kept := mended_chat(call.body, refusal.body)) is None:
                raise
        return await self._open_chat(replace(call, body=kept))

    async def _open_chat(self, call: Call) -> Reply:
        created, view = int(time.time()), parse_chat(call.body)
        tools = of_tools(call.upstream_model, call.body) if any(tool.is_strict for tool in view.tools) else None
        keeps_strict = tools not in self._too_strict
        reader = partial(AnthropicStreamReader, self.name, wants_usage_chunk=call.wants_usage_chunk, created=created)
        exchange = Exchange(
            url=join_url(self._base_url, "messages"),
            headers=self._headers,
            body=build_messages_body(view, call, keeps_strict=keeps_strict),
            read_answer=partial(read_message, backend=self.name, created=created),
            stream_reader=reader,
            translate_error=openai_error,
        )
        try:
            return await self.exchange(call, exchange)
        except UpstreamRejected as refusal:
            if tools is None or not keeps_strict or not _TOO_STRICT.search(refusal.body):
                raise
        body = build_messages_body(view, call, keeps_strict=False)
        reply = await self.exchange(call, replace(exchange, body=body))
        self._too_strict.put(tools, True)
        return reply

    async def _open_native(self, call: Call) -> Reply:
        came = self._native(call)
        known = self._unknown.get(_asked(call, came))
        fields = known.fields if known else frozenset[str]()
        exchange = came
        if known:
            body, headers = without_fields(came.body, fields), with_betas(came.headers, known.betas)
            exchange = replace(came, body=body, headers=headers)
        of_model = (call.operation, call.upstream_model)
        kinds = self._thinking.get(of_model) or frozenset[str]()
        if kinds and (body := without_kinds(exchange.body, kinds)) != exchange.body:
            exchange = replace(exchange, body=body)
        asked, refused = exchange, kinds
        told_effort = is_effort_last = False
        for _ in range(_MOST_MENDS):
            try:
                reply = await self.exchange(call, exchange)
                break
            except UpstreamRejected as refusal:
                body = _mended(exchange.body, refusal.body, keeps_effort=told_effort)
                headers = without_unknown_betas(exchange.headers, refusal.body)
                if body == exchange.body and headers == exchange.headers:
                    raise
                fields |= unknown_fields(refusal.body)
                refused |= {kind} if (kind := refused_kind(refusal.body)) else set[str]()
                is_effort_last = _effort_of(body) not in (None, _effort_of(exchange.body))
                told_effort = told_effort or is_effort_last  # once: a server that repeats requests names many
            exchange = replace(exchange, body=body, headers=headers)
        else:
            reply = await self.exchange(call, exchange)
        if refused != kinds and not may_be_repeated(call.body):
            self._thinking.put(of_model, refused)
        if exchange is not asked and not says_unknown(call.body):
            self._learn(call, came, exchange, fields)
        if is_effort_last and not efforts.may_be_repeated(call.body):  # else it may not be what was refused
            self._efforts.put((*of_model, _effort_of(came.body) or ""), _effort_of(exchange.body) or "")
        return reply

    def _learn(self, call: Call, came: Exchange, taken: Exchange, fields: frozenset[str]) -> None:
        left = taken.headers.get(BETA)
        if fields or left != came.headers.get(BETA):
            self._unknown.put(_asked(call, came), _Known(fields, left))

    def _with_known_effort(self, config: bytes, call: Call, *, was_named: bool) -> bytes | None:
        """An `output_config` with an effort that the model takes; None if nothing is left of it."""
        asked = decode_object(config) or {}
        effort = text_of(asked, "effort")
        if not effort:
            return config
        model = call.upstream_model
        known = self._efforts.get((call.operation, model, effort))
        told = known or (effort if was_named else claude_effort(model, effort))
        if told == effort:
            return config
        left = {name: value for name, value in asked.items() if name != "effort"} | ({"effort": told} if told else {})
        return msgspec.json.encode(left) if left else None

    async def health(self) -> BackendHealth:
        return await self.probe(join_url(self._base_url, "models"), self._headers, answers_ok)

    def _native(self, call: Call) -> Exchange:
        try:
            members = find_members(call.body)
            require_plain_names(members, _DECIDED_ON)
            model = msgspec.json.encode(call.upstream_model)
            edits: dict[str, bytes | None] = {"model": model}
            named = members.get("model")
            was_named = named is not None and named.of(call.body) == model
            if not was_named and not is_older_claude(call.upstream_model):
                edits |= dict.fromkeys(CLAUDE_SAMPLING & members.keys())
            elif not was_named and is_claude(call.upstream_model) and {"temperature", "top_p"} <= members.keys():
                temperature = members["temperature"]
                has_effect = temperature.of(call.body) not in (b"1", b"1.0")
                edits["top_p" if has_effect else "temperature"] = None
            if config := members.get("output_config"):
                said = config.of(call.body)
                edits["output_config"] = self._with_known_effort(said, call, was_named=was_named)
            if messages := members.get("messages"):
                came = messages.of(call.body)
                signed = without_unsigned(came) if UNSIGNED_MARK in came else came
                if (said := with_call_ids(signed, for_anthropic)) != came:
                    edits["messages"] = said
            body = splice(call.body, edits, members)
        except NotAnObject as error:
            raise UpstreamRejected(str(error), body=messages_error(400, str(error))) from error
        is_count = call.operation == "messages.count_tokens"
        own = {name: value for name, value in call.headers.items() if name in VENDOR_HEADERS}
        return Exchange(
            url=join_url(self._base_url, NATIVE_PATHS[call.operation]),
            headers=self._headers | own,
            body=body,
            read_answer=partial(read_count if is_count else read_native_message, backend=self.name),
            stream_reader=partial(NativeMessagesReader, self.name),
            translate_error=in_messages_shape,
        )


def _asked(call: Call, came: Exchange) -> _Asked:
    return call.operation, call.upstream_model, came.headers.get(BETA)


def _effort_of(body: bytes) -> str | None:
    config = find_members(body).get("output_config")
    return text_of(decode_object(config.of(body)) or {}, "effort") if config else None


def _mended(body: bytes, refusal: bytes, *, keeps_effort: bool) -> bytes:
    """The request without earlier thinking that Anthropic cannot read, without new thinking where another server misses
    the earlier, with thinking of another kind, with the nearest effort that a server offers, without empty texts, with
    pictures under their own types and calls under ids of their own, or without fields that it does not know; the same
    bytes if it was refused for anything else."""
    if (known := without_unknown_fields(body, refusal)) != body:
        return known
    if (kind := refused_kind(refusal)) and (told := without_kinds(body, (kind,))) != body:
        return told
    members = find_members(body)
    if _MISSED.search(refusal):
        return turned_off(body)
    if not keeps_effort and (config := members.get("output_config")):
        asked = decode_object(config.of(body)) or {}
        effort = text_of(asked, "effort")
        told = offered_effort(effort, refusal) if effort in EFFORTS else None
        if told:
            return splice(body, {"output_config": msgspec.json.encode(asked | {"effort": told})}, members)
    messages = members.get("messages")
    if messages and OF_ANOTHER_TYPE.search(refusal):
        return splice(body, {"messages": with_true_types(messages.of(body))}, members)
    if messages and OF_ONE_ID.search(refusal):
        return splice(body, {"messages": with_distinct_ids(messages.of(body))}, members)
    if messages and _EMPTY.search(refusal):
        return splice(body, {"messages": without_empty_texts(messages.of(body))}, members)
    if messages is None or not _UNREADABLE.search(refusal):
        return body
    return splice(body, {"messages": without_thinking(messages.of(body))}, members)
