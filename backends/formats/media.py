"""Requests and answers for images, speech, transcripts and moderations in OpenAI's format. No IO, no clock. Streams are
in media_events.py.

Bytes pass through unchanged, except for the model, and where usage must be asked for. A plain text transcript has none,
so JSON is requested and its text returned. Speech has none unless it is streamed as events, so events are requested if
its model is billed by tokens, and their audio returned.
"""

import re
from functools import partial
from typing import Final, Literal, cast

import msgspec

from backends.errors import UnreadableAnswer, UpstreamRejected
from backends.formats.form_splice import NotAForm, find_fields, is_form, splice_form, text_fields
from backends.formats.json_objects import NOT_JSON
from backends.formats.json_splice import splice
from backends.formats.openai import error_body
from backends.formats.openai_request import members_of
from backends.formats.usage_wire import MalformedUsage, believable, parse_openai_usage, token_count
from backends.http.errors import error_from_event, no_answer
from backends.protocol import EVENT_STREAM, JSON, Call, Chunk
from backends.usage import NO_UNITS, Units, Usage

Shape = Literal["json", "text", "captions", "audio", "events"]
"""Of an answer. `captions` are SRT and WebVTT, `audio` is raw bytes."""
TEXT: Final = "text/plain; charset=utf-8"
SOUNDS: Final = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""OpenAI's names of speech formats; the default is mp3."""
MILLISECONDS: Final = 1000
_MOST_SECONDS: Final = 10**6
TRANSCRIPTS: Final = ("audio.transcriptions", "audio.translations")
_SHAPES: Final[dict[str, Shape]] = {"text": "text", "srt": "captions", "vtt": "captions"}
_CAPTION_END: Final = re.compile(rb"--> *(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[,.](\d{3})")


class MediaAsked(msgspec.Struct, frozen=True):
    """A request as sent to its provider, and the `shape` and `content_type` that its caller gets."""

    body: bytes
    shape: Shape
    content_type: str = JSON
    asks_for_events: bool = False
    """Speech is requested as events although the caller wants plain audio."""
    words: Literal["", "few", "verbose"] = ""
    """For a brief transcript: the form requested. Some servers report its length only in the verbose form."""


class _Nothing(msgspec.Struct, gc=False):
    """An item that is only counted, whatever it holds."""


class _Answer(msgspec.Struct):
    data: list[_Nothing] | None = None
    results: list[_Nothing] | None = None
    text: str | None = None
    duration: object = None
    usage: object = None
    svg_usage: object = None
    service_tier: object = None
    error: object = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def ask(call: Call, *, is_verbose: bool = False) -> MediaAsked:
    """The caller's body with our model in it; `is_verbose` requests the verbose form of a brief transcript. Raises
    UpstreamRejected if it cannot be read."""
    try:
        if is_form(call.content_type):
            return _ask_by_form(call, is_verbose=is_verbose)
        members = members_of(call.body)
        edits: dict[str, bytes | None] = {"model": msgspec.json.encode(call.upstream_model)}
        if call.operation != "audio.speech":
            return MediaAsked(splice(call.body, edits, members), "events" if call.is_stream else "json")
        fields = msgspec.json.decode(call.body, type=dict[str, object])
        if fields.get("stream_format") == "sse":
            return MediaAsked(splice(call.body, edits, members), "events", EVENT_STREAM)
        if call.wants_usage:
            edits["stream_format"] = b'"sse"'
        sound = SOUNDS.get(str(fields.get("response_format") or "mp3"), "application/octet-stream")
        return MediaAsked(splice(call.body, edits, members), "audio", sound, call.wants_usage)
    except NotAForm as error:
        body = error_body(str(error), kind="invalid_request_error", code="invalid_body")
        raise UpstreamRejected(str(error), status=400, body=body) from error


def _ask_by_form(call: Call, *, is_verbose: bool) -> MediaAsked:
    """Raises NotAForm."""
    edits = {"model": call.upstream_model}
    if call.operation not in TRANSCRIPTS:
        return MediaAsked(splice_form(call.body, call.content_type, edits), "events" if call.is_stream else "json")
    fields = text_fields(call.body, find_fields(call.body, call.content_type))
    given = fields.get("response_format", "json")
    shape: Shape = "events" if call.is_stream else _SHAPES.get(given, "json")
    words: Literal["", "few", "verbose"] = ""
    if shape == "text" or (shape == "json" and given == "json"):
        words = "verbose" if is_verbose else "few"
        if shape == "text" or is_verbose:
            edits["response_format"] = "verbose_json" if is_verbose else "json"
    spliced = splice_form(call.body, call.content_type, edits)
    return MediaAsked(spliced, shape, JSON if shape in ("json", "events") else TEXT, words=words)


def read_answer(body: bytes, asked: MediaAsked, call: Call, *, backend: str) -> Chunk:
    """The single chunk of a whole answer. Raises UnreadableAnswer, or the error that the answer holds."""
    if asked.shape == "captions":
        return _whole(body, _usage_of_captions(body))
    try:
        answer = _ANSWER.decode(body)
    except NOT_JSON as error:
        if asked.shape == "text":  # a server that always answers with text
            return _whole(body, None)
        raise no_answer(f"{backend} answered with something that is not JSON", body) from error
    if answer.error is not None:
        raise error_from_event(answer.error, backend=backend, is_started=False)
    usage, is_malformed = believable(partial(_usage, call=call), answer)
    if asked.shape == "text" and answer.text is not None:
        body = answer.text.encode() + b"\n"
    elif asked.words == "verbose" and answer.text is not None:
        body = msgspec.json.encode({"text": answer.text})
    elif call.operation in TRANSCRIPTS:
        if answer.text is None:
            raise UnreadableAnswer(f"{backend} answered without a text", usage=usage)
    elif (answer.results if call.operation == "moderations" else answer.data) is None:
        raise UnreadableAnswer(f"{backend} answered with nothing that was requested", usage=usage)
    return _whole(body, usage, is_malformed=is_malformed)


def _whole(body: bytes, usage: Usage | None, *, is_malformed: bool = False) -> Chunk:
    return Chunk(body, has_output=True, usage=usage, is_done=True, is_usage_malformed=is_malformed)


def _usage(answer: _Answer, call: Call) -> Usage | None:
    """Raises MalformedUsage."""
    if call.operation in TRANSCRIPTS:
        return transcript_usage(answer.usage, answer.duration)
    found = None if answer.usage is None else parse_openai_usage(answer.usage, service_tier=answer.service_tier)
    if call.operation == "moderations":
        return found
    drawn = image_usage(found, len(answer.data or ()))
    if answer.svg_usage is None:
        return drawn
    return msgspec.structs.replace(drawn, other_tool_calls=1)  # another model wrote the SVG, at its own prices


def image_usage(found: Usage | None, images: int) -> Usage:
    """The usage with images counted. Output tokens are image tokens unless the model reports those separately."""
    if found is None:
        return Usage(units=Units(images=images))
    drawn = found.image_output_tokens or found.output_tokens
    return msgspec.structs.replace(found, image_output_tokens=drawn, units=Units(images=images))


def transcript_usage(wire: object, duration: object = None) -> Usage | None:
    """Tokens, the audio's length, or both; None if neither is reported. Raises MalformedUsage.

    OpenAI reports `seconds`, or tokens with the audio share in `input_token_details`; Mistral `prompt_audio_seconds`;
    `verbose_json` also has `duration`, which is not rounded as billing is.
    """
    if wire is None:
        milliseconds = _milliseconds(duration)
        return Usage(units=Units(audio_milliseconds=milliseconds)) if milliseconds else None
    if not isinstance(wire, dict):
        raise MalformedUsage("usage is not an object")
    fields = cast(dict[str, object], wire)
    told = next((fields[name] for name in ("seconds", "prompt_audio_seconds") if fields.get(name)), duration)
    units = Units(audio_milliseconds=_milliseconds(told))
    if "input_tokens" not in fields and "prompt_tokens" not in fields:
        return Usage(units=units) if units != NO_UNITS else None
    read, written, total = (
        max(token_count(fields.get(name), name) for name in names)
        for names in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens",))
    )
    heard = max(0, total - read - written)  # Mistral counts audio tokens in the total and in details
    details = fields.get("input_token_details") or fields.get("prompt_tokens_details")
    counts = {"prompt_tokens": read + heard, "completion_tokens": written, "total_tokens": None}
    found = parse_openai_usage(fields | counts | {"prompt_tokens_details": details})
    return msgspec.structs.replace(found, audio_input_tokens=max(found.audio_input_tokens, heard), units=units)


def _milliseconds(told: object) -> int:
    """0 if nothing is reported; some servers send numbers as strings. Raises MalformedUsage."""
    try:
        seconds = float(told) if isinstance(told, str | int | float) else 0.0
    except (ValueError, OverflowError) as error:
        raise MalformedUsage("duration is not a number") from error
    if not 0.0 <= seconds <= _MOST_SECONDS:
        raise MalformedUsage("duration is not one")
    return round(seconds * MILLISECONDS)


def _usage_of_captions(body: bytes) -> Usage | None:
    """The length up to the end of the last caption; silence after it is unknown."""
    last = max(
        (
            ((int(found[1] or 0) * 60 + int(found[2])) * 60 + int(found[3])) * MILLISECONDS + int(found[4])
            for found in _CAPTION_END.finditer(body)
        ),
        default=0,
    )
    return Usage(units=Units(audio_milliseconds=last), is_estimated=True) if last else None
