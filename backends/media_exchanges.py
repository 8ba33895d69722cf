"""Builds requests for images, speech, transcripts and moderations, and remembers how each model must be asked.

Some servers report usage only if it is requested in a certain way, which others reject.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from backends.errors import UpstreamRejected
from backends.formats.error_bodies import in_openai_shape
from backends.formats.form_splice import is_form
from backends.formats.media import MediaAsked, ask, read_answer
from backends.formats.media_events import MediaStreamReader, SpeechEventReader, SpeechStreamReader, speech_usage
from backends.http.reply import BytesReply, StreamReply, TimedResponse, Told
from backends.http_backend import Exchange
from backends.learned import Learned, Monotonic
from backends.protocol import EVENT_STREAM, JSON, Call, Chunk, Reply

_SPEECH = "audio.speech"


class MediaExchanges:
    """For one backend; models are remembered by their upstream names."""

    def __init__(self, backend: str, monotonic: Monotonic) -> None:
        self._backend = backend
        self._speak_no_events = Learned[str, bool](monotonic)
        self._tell_length_in_many_words: set[str] = set()
        self._tell_no_length = Learned[str, bool](monotonic)

    def build(self, call: Call, url: str, headers: Mapping[str, str]) -> tuple[MediaAsked, Exchange]:
        """Raises UpstreamRejected if the body cannot be parsed."""
        model = call.upstream_model
        asked = ask(
            msgspec.structs.replace(call, wants_usage=False) if model in self._speak_no_events else call,
            is_verbose=model in self._tell_length_in_many_words,
        )
        is_speech = call.operation == _SPEECH
        kind = call.content_type if is_form(call.content_type) else JSON  # whatever type the caller named
        return asked, Exchange(
            url=url,
            headers={**headers, "x-request-id": call.request_id, "content-type": kind, "accept": "*/*"},
            body=asked.body,
            read_answer=partial(self._read, asked, call),
            stream_reader=partial(MediaStreamReader, call, backend=self._backend),
            translate_error=in_openai_shape,
            content_type=JSON if asked.shape == "events" else asked.content_type,
            may_be_whole=not is_speech,
            read_stream=partial(self._speech, asked, call) if is_speech else None,
        )

    def learns(self, call: Call, asked: MediaAsked, refusal: UpstreamRejected) -> bool:
        """Whether the provider rejected our way of requesting usage; if so, the next `build` uses another."""
        model = call.upstream_model
        if asked.asks_for_events and b"stream_format" in refusal.body:
            self._speak_no_events.put(model, True)
            return True
        if asked.words == "verbose" and b"response_format" in refusal.body:
            self._expect_no_length(model)
            return True
        return False

    def forget(self, model: str) -> None:
        """What refusals taught of a model."""
        self._speak_no_events.forget(model)
        self._tell_no_length.forget(model)

    def _read(self, asked: MediaAsked, call: Call, body: bytes) -> Chunk:
        chunk = read_answer(body, asked, call, backend=self._backend)
        if chunk.usage is None and not chunk.is_usage_malformed:
            if asked.words == "verbose":
                self._expect_no_length(call.upstream_model)
            elif asked.words == "few" and call.upstream_model not in self._tell_no_length:
                self._tell_length_in_many_words.add(call.upstream_model)
        return chunk

    def _expect_no_length(self, model: str) -> None:
        self._tell_length_in_many_words.discard(model)
        self._tell_no_length.put(model, True)

    def _speech(self, asked: MediaAsked, call: Call, response: TimedResponse, kind: str, told: Told) -> Reply:
        if not kind.startswith(EVENT_STREAM):
            return BytesReply(response, self._backend, kind or asked.content_type, speech_usage(None, call))
        reader = SpeechStreamReader if asked.shape == "events" else SpeechEventReader
        return StreamReply(response, reader(call, backend=self._backend), self._backend, asked.content_type, told)
