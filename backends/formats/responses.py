"""Passes OpenAI's Responses API through to providers that offer it, and meters it on the way. Pure.

State that the provider keeps (`previous_response_id`, stored conversations) stays there: such a call can only go where
the earlier one went, and nothing here translates it for another provider.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, cast

from msgspec.structs import replace

from backends.errors import BackendError, Untranslatable, UpstreamRejected
from backends.formats.hosted_tools import calls_of_response, with_searched
from backends.formats.json_objects import Fields, decode_object, objects_of, part_of, text_of
from backends.formats.openai import error_body
from backends.formats.past_thinking import is_our_reasoning
from backends.formats.usage_wire import believable, parse_openai_usage, usage_in
from backends.http.errors import error_from_event, no_answer
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk
from backends.response_names import PREFIX, ResponseNames
from backends.usage import Usage

_KIND: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_OUTPUT: Final = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.code_interpreter_call_code.delta",
        "response.audio.transcript.delta",
    }
)
_BEGUN: Final = "response.output_item.added"
_EMPTY_AT_FIRST: Final = frozenset({"message", "reasoning"})
"""Items whose content comes in later events. Any other item is a tool call already made, and its tool may run long."""
_PREVIOUS: Final = "previous_response_id"
_KEPT: Final = (_PREVIOUS, "conversation", "prompt")
_REFERENCES: Final = ("item_reference", None)
_OWN: Final = re.compile(r"[!#-\[\]-~]{1,256}")
"""Text that JSON writes without escapes."""
ENDS: Final = frozenset({"response.completed", "response.incomplete"})


def needs_its_provider(body: bytes) -> bool:
    """Whether the call depends on state or tools of one provider, and so cannot go elsewhere."""
    fields = decode_object(body) or {}
    stored = any(fields.get(name) for name in (*_KEPT, "background"))
    return stored or any(tool.get("type") != "function" for tool in objects_of(fields.get("tools")))


def leans_on_kept(body: bytes) -> bool:
    """Whether part of the call's input is not in its body but stored at a provider."""
    fields = decode_object(body) or {}
    items = objects_of(fields.get("input"))
    return any(fields.get(name) for name in _KEPT) or any(
        item.get("type") in _REFERENCES and "role" not in item and not is_our_reasoning(item) for item in items
    )


def as_asked(body: bytes, names: ResponseNames, *, backend: str) -> bytes:
    """A call's body with `previous_response_id` replaced by the provider's own id.

    Raises UpstreamRejected if the response is not the team's, Untranslatable if another backend keeps it.
    """
    if PREFIX.encode() not in body:
        return body
    name = (decode_object(body) or {}).get(_PREVIOUS)
    if not isinstance(name, str) or not name.startswith(PREFIX):
        return body
    found, written = names.inward(name), f'"{name}"'.encode()
    if found is None or written not in body:
        raise no_response(name, "no response of that name is known to this key")
    if found.backend != backend:
        remedy = "use a model of that backend, or have your client send the conversation in full"
        raise no_response(name, f"{found.backend} stores that response; {remedy}", Untranslatable)
    return body.replace(written, f'"{found.own}"'.encode())


def no_response(name: str, why: str, error: type[UpstreamRejected] = UpstreamRejected) -> UpstreamRejected:
    """OpenAI's own words and code: clients that read either send the conversation in full."""
    message = f"Previous response with id {name[:300]!r} not found: {why}."
    refusal = error_body(message, kind="invalid_request_error", code="previous_response_not_found", param=_PREVIOUS)
    return error(message, body=refusal)


def as_shown(payload: bytes, response: Mapping[str, object], names: ResponseNames, *, backend: str) -> bytes:
    """The JSON of a response, or of an event that holds one, with the ids that callers see. A response that is not
    stored keeps its provider's ids."""
    if response.get("store") is False:
        return payload
    for member in ("id", _PREVIOUS):
        own = response.get(member)
        if isinstance(own, str) and _OWN.fullmatch(own):
            payload = payload.replace(f'"{own}"'.encode(), f'"{names.outward(own, backend)}"'.encode())
    return payload


def read_response(body: bytes, *, backend: str, names: ResponseNames | None = None) -> Chunk:
    """A whole response, unchanged except for its ids. Raises BackendError if it is no response, or a failed one."""
    document = check_response(body, backend=backend)
    return _final(body if names is None else as_shown(body, document, names, backend=backend), document)


def check_response(body: bytes, *, backend: str) -> Fields:
    """The response in the body of a 200. Raises BackendError if it is no response, or a failed one."""
    document = decode_object(body)
    if document is None or document.get("object") != "response" or document.get("status") == "failed":
        raise _not_a_response(document or {}, body, backend=backend)
    return document


def _not_a_response(document: Mapping[str, object], body: bytes, *, backend: str) -> BackendError:
    if document.get("status") == "failed" or document.get("error") is not None:
        return failure_of(document, document.get("error"), backend=backend, is_started=False)
    usage, _ = usage_of(document)
    return no_answer(f"{backend} answered with something that is not a response", body, usage=usage)


def failure_of(response: Mapping[str, object], error: object, *, backend: str, is_started: bool) -> BackendError:
    """The error for a response that failed, with the usage of what was generated before."""
    failure = error_from_event(error, backend=backend, is_started=is_started)
    failure.usage, _ = usage_of(response)
    return failure


def _final(payload: bytes, response: Mapping[str, object], *, is_started: bool = False) -> Chunk:
    usage, is_malformed = usage_of(response)
    characters = 0 if is_started else _characters(response.get("output"))
    return Chunk(
        payload,
        has_output=characters > 0 or (not is_started and _has_calls(response)),
        output_characters=characters,
        finish_reason=finish_reason_of(response),
        usage=usage,
        is_done=True,
        is_usage_malformed=is_malformed,
    )


class ResponsesStreamReader(StreamReader):
    """One stream; every event's payload is `event: <type>`, then its data, untouched but for `names`."""

    def __init__(self, backend: str, *, names: ResponseNames | None = None) -> None:
        super().__init__(backend)
        self._names = names
        self._has_text = False

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        kind = text_of(event, "type") if event else None
        if event is None or kind is None or not _KIND.fullmatch(kind):
            raise self._broken("sent an event that is not one of its own")
        response = part_of(event, "response")
        if kind in ("error", "response.failed"):
            error = response.get("error") if kind == "response.failed" else event.get("error", event)
            raise failure_of(response, error, backend=self._backend, is_started=self.is_started)
        if response and self._names is not None:
            data = as_shown(data, response, self._names, backend=self._backend)
        payload = b"event: " + kind.encode() + b"\ndata: " + data.replace(b"\n", b" ") + b"\n\n"
        if kind in ENDS:
            self.is_done = True
            return [_final(payload, response, is_started=self._has_text)]
        delta = text_of(event, "delta") if kind in _OUTPUT else None
        characters = len(delta or "")
        has_output = bool(delta) or (kind == _BEGUN and text_of(part_of(event, "item"), "type") not in _EMPTY_AT_FIRST)
        self._has_text = self._has_text or characters > 0
        self.is_started = self.is_started or has_output
        return [Chunk(payload, has_output=has_output, output_characters=characters)]


def _has_calls(response: Mapping[str, object]) -> bool:
    return any(text_of(item, "type") not in _EMPTY_AT_FIRST for item in objects_of(response.get("output")))


def usage_of(response: Mapping[str, object]) -> tuple[Usage | None, bool]:
    """(what a response consumed, whether it says so in a way that cannot be believed). OpenAI pays for responses that
    it may learn from, up to so many tokens a day, and says so; whether for its tools too, it does not say."""
    parse = partial(parse_openai_usage, service_tier=response.get("service_tier"))
    usage, is_malformed = believable(parse, usage_in(response))
    if usage is None:
        return None, is_malformed
    calls = calls_of_response(response)
    if any(calls) and not (usage.web_searches or usage.file_searches or usage.other_tool_calls):
        usage = with_searched(replace(usage, **calls._asdict()), response)
    if part_of(response, "billing").get("payer") == "openai":
        return (replace(usage, is_estimated=True) if any(calls) else replace(usage, charged_pico_usd=0)), False
    return usage, False


def finish_reason_of(response: Mapping[str, object]) -> str | None:
    """A response's end as a chat's `finish_reason`; None if it has not ended."""
    if response.get("status") == "incomplete":
        reason = part_of(response, "incomplete_details").get("reason")
        return "content_filter" if reason == "content_filter" else "length"
    called = any(item.get("type") == "function_call" for item in objects_of(response.get("output")))
    return "tool_calls" if called else "stop" if response.get("status") == "completed" else None


def _characters(output: object) -> int:
    """Total length of all texts and arguments in the items, at any depth."""
    if isinstance(output, list):
        return sum(map(_characters, cast(list[object], output)))
    if not isinstance(output, dict):
        return 0
    fields = cast(Fields, output)
    said = sum(len(text) for name in ("text", "arguments", "refusal") if (text := text_of(fields, name)))
    return said + _characters(fields.get("content")) + _characters(fields.get("summary"))
