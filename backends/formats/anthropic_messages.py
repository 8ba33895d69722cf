"""Passes Anthropic's events through for callers who use its format, and meters them on the way. Pure."""

import re
from typing import Final, cast

from backends.formats.anthropic import (
    FINISH_REASONS,
    INTERRUPTED,
    believable_usage,
    billed,
    has_begun,
    not_a_message,
    note_usage,
)
from backends.formats.json_objects import Fields, decode_object, part_of
from backends.formats.usage_wire import usage_in
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk

_KIND: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def read_native_message(body: bytes, *, backend: str) -> Chunk:
    """A whole message, its bytes unchanged. Raises BackendError if it is none."""
    document = decode_object(body)
    if document is None or document.get("type") == "error" or not isinstance(document.get("content"), list):
        raise not_a_message(document or {}, body, backend=backend)
    usage, is_malformed = believable_usage(usage_in(document))
    blocks = cast(list[object], document["content"])
    reason = document.get("stop_reason")
    return Chunk(
        body,
        has_output=bool(blocks),
        output_characters=sum(map(_characters, blocks)),
        finish_reason=FINISH_REASONS.get(str(reason), "stop") if reason else None,
        usage=billed(usage, reason, has_output=bool(blocks)),
        is_done=True,
        is_usage_malformed=is_malformed,
    )


class NativeMessagesReader(StreamReader):
    """One stream; every event's payload is `event: <type>`, then its data unchanged."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self._usage: Fields = {}
        self._id: object = None
        self._has_some = self._has_output = False

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        kind = event.get("type") if event else None
        if event is None or not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise self._broken("sent an event that is not one of its own")
        if kind == "error":
            raise self._failed(event.get("error"))
        payload = b"event: " + kind.encode() + b"\ndata: " + data.replace(b"\n", b" ") + b"\n\n"
        if kind == "message_stop" and not self._has_some:
            raise self._broken("ended its stream without an answer")
        self._has_some = self._has_some or kind != "ping"
        chunks = [self._chunk(kind, event, payload)]
        self.is_started = self.is_started or has_begun(event, chunks)
        return chunks

    def _chunk(self, kind: str, event: Fields, payload: bytes) -> Chunk:
        if kind in ("content_block_delta", "content_block_start"):
            self._has_output = True
            characters = _characters(event.get("delta") or event.get("content_block"))
            return Chunk(payload, has_output=characters > 0, output_characters=characters)
        if kind == "message_start":
            message = part_of(event, "message")
            if self._id not in (None, message.get("id")):
                raise self._broken(INTERRUPTED)
            self._id = message.get("id")
            note_usage(self._usage, message.get("usage"))
            so_far, _ = believable_usage(self._usage or None)
            return Chunk(payload, usage_so_far=so_far)
        if kind == "message_delta":
            note_usage(self._usage, usage_in(event))
            is_counted = event.get("usage") is not None  # at the start its output had only begun
            usage, is_malformed = believable_usage(self._usage if is_counted else None)
            delta = event.get("delta")
            reason = cast(Fields, delta).get("stop_reason") if isinstance(delta, dict) else None
            finish = FINISH_REASONS.get(str(reason), "stop") if reason else None
            usage = billed(usage, reason, has_output=self._has_output)
            return Chunk(payload, finish_reason=finish, usage=usage, is_usage_malformed=is_malformed)
        self.is_done = kind == "message_stop"
        return Chunk(payload, is_done=self.is_done)


def _characters(block: object) -> int:
    if not isinstance(block, dict):
        return 0
    fields = cast(Fields, block)
    said = [fields.get(name) for name in ("text", "thinking", "partial_json", "name")]
    count = sum(len(text) for text in said if isinstance(text, str))
    return count + (len(str(fields["input"])) if fields.get("input") else 0)
