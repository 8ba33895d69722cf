"""Reads streams of images, speech and transcripts in OpenAI's format. No IO, no clock."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Final

import msgspec

from backends.formats.json_objects import NOT_JSON
from backends.formats.media import TRANSCRIPTS, image_usage, transcript_usage
from backends.formats.usage_wire import MAX_TOKENS, MalformedUsage, parse_openai_usage
from backends.http.stream_reader import StreamReader
from backends.protocol import Call, Chunk
from backends.usage import Units, Usage

DONE: Final = b"[DONE]"
_ENDINGS: Final = (".completed", ".done")


class _Event(msgspec.Struct):
    type: str = ""
    audio: str | None = None
    usage: object = None
    error: object = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class MediaStreamReader(StreamReader):
    """Passes one answer's events through. Each completion event is held back until the next one, so that the last is
    sent with the usage, after the call was booked."""

    def __init__(self, call: Call, *, backend: str) -> None:
        self._call = call
        super().__init__(backend)
        self._held: bytes | None = None
        self._images = 0
        self._usage: Usage | None = None
        self._is_malformed = False

    def read(self, data: bytes) -> list[Chunk]:
        """At most one chunk. Raises StreamBroken, or before the first event any retryable error."""
        if data == DONE:
            return self.end()
        try:
            event = _EVENT.decode(data)
        except NOT_JSON as error:
            raise self._broken("sent an event that is not JSON") from error
        if event.error is not None or event.type == "error":
            raise self._failed(event.error)
        self.is_started = True
        if event.type.endswith(_ENDINGS):
            self._note(event)
        held, self._held = self._held, None
        if event.type.endswith(_ENDINGS):
            self._held = self._payload(event, data)
            return [] if held is None else [Chunk(held, has_output=True)]
        return [Chunk((held or b"") + self._payload(event, data), has_output=True)]

    def end(self) -> list[Chunk]:
        """The stream is over: complete if there was a completion event. Raises otherwise."""
        if self._held is None:
            return super().end()
        self.is_done = True
        usage = self._usage
        if self._call.operation.startswith("images."):
            usage = image_usage(usage, self._images)
        return [Chunk(self._held, has_output=True, usage=usage, is_done=True, is_usage_malformed=self._is_malformed)]

    def _payload(self, event: _Event, data: bytes) -> bytes:
        """The event as received; its name is its `type`."""
        name = b"event: %b\n" % event.type.encode() if event.type.isprintable() and event.type else b""
        return name + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"

    def _note(self, event: _Event) -> None:
        self._images += 1
        if event.usage is None:
            return
        try:
            if self._call.operation in TRANSCRIPTS:
                self._usage = transcript_usage(event.usage)
            else:
                self._usage = _sum(self._usage, parse_openai_usage(event.usage))
        except MalformedUsage:
            self._is_malformed = True


class SpeechStreamReader(MediaStreamReader):
    """Speech as events, for a caller who asked for them."""

    def end(self) -> list[Chunk]:
        return [msgspec.structs.replace(chunk, usage=speech_usage(chunk.usage, self._call)) for chunk in super().end()]


class SpeechEventReader(SpeechStreamReader):
    """Speech received as events, for a caller who wants plain audio."""

    def _payload(self, event: _Event, data: bytes) -> bytes:
        del data
        try:
            return b64decode(event.audio or b"", validate=True)
        except (NotBase64, ValueError) as error:
            raise self._broken("sent audio that is not base64") from error


def speech_usage(found: Usage | None, call: Call) -> Usage | None:
    """The usage with characters counted. Output tokens are audio unless the model reports those separately. None if
    tokens are billed but were not reported."""
    if found is None:
        return None if call.wants_usage else Usage(units=Units(characters=call.characters))
    said = found.audio_output_tokens or found.output_tokens
    return msgspec.structs.replace(found, audio_output_tokens=said, units=Units(characters=call.characters))


def _sum(one: Usage | None, other: Usage) -> Usage:
    """The total for several images, each with its own usage."""
    if one is None:
        return other
    names = [name for name in Usage.__struct_fields__ if name.endswith("_tokens")]
    added = {name: min(getattr(one, name) + getattr(other, name), MAX_TOKENS) for name in names}
    return msgspec.structs.replace(other, charged_pico_usd=None, **added)
