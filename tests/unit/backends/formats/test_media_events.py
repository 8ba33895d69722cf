"""Streams of images, speech and transcripts: all events are passed on, the last one only after the call was booked."""

import base64
import json
from typing import Any

import pytest

from backends.errors import BackendError, StreamBroken, UnreadableAnswer, UpstreamUnavailable
from backends.formats.media_events import MediaStreamReader, SpeechEventReader, SpeechStreamReader, speech_usage
from backends.protocol import Call, Chunk, MediaOperation
from backends.usage import Units, Usage

USAGE = {"input_tokens": 14, "output_tokens": 50, "total_tokens": 64}


def make_call(operation: MediaOperation, **more: Any) -> Call:
    return Call(operation, "m", b"{}", True, "r1", **more)


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def feed(reader: MediaStreamReader, *events: bytes, ends: bool = True) -> list[Chunk]:
    chunks = [chunk for data in events for chunk in reader.read(data)]
    return chunks + (reader.end() if ends else [])


def test_an_image_comes_in_parts() -> None:
    partial = event("image_generation.partial_image", b64_json="AA", partial_image_index=0)
    whole = event("image_generation.completed", b64_json="AAAA", usage=USAGE)
    first, last = feed(MediaStreamReader(make_call("images.generations"), backend="b"), partial, whole)
    assert first.payload == b"event: image_generation.partial_image\ndata: " + partial + b"\n\n"
    assert (first.has_output, first.is_done) == (True, False)
    assert last.payload == b"event: image_generation.completed\ndata: " + whole + b"\n\n"
    assert last.is_done
    assert last.usage == Usage(14, output_tokens=50, image_output_tokens=50, units=Units(images=1))


def test_several_images_are_summed_up() -> None:
    whole = event("image_edit.completed", b64_json="AAAA", usage=USAGE)
    first, last = feed(MediaStreamReader(make_call("images.edits"), backend="b"), whole, whole)
    assert not first.is_done
    assert last.usage == Usage(28, output_tokens=100, image_output_tokens=100, units=Units(images=2))


def test_a_transcript_comes_in_words() -> None:
    reader = MediaStreamReader(make_call("audio.transcriptions"), backend="b")
    delta, done = event("transcript.text.delta", delta="a"), event("transcript.text.done", text="ab", usage=USAGE)
    chunks = feed(reader, delta, delta, done, b"[DONE]", ends=False)
    assert [chunk.is_done for chunk in chunks] == [False, False, True]
    assert chunks[-1].usage == Usage(14, output_tokens=50)
    assert reader.is_done


def test_speech_that_came_as_events_is_handed_on_as_bytes() -> None:
    reader = SpeechEventReader(make_call("audio.speech", characters=9, wants_usage=True), backend="b")
    pieces = [b"ID3\x00", b"\xff\xfb"]
    deltas = [event("speech.audio.delta", audio=base64.b64encode(piece).decode()) for piece in pieces]
    chunks = feed(reader, *deltas, event("speech.audio.done", usage=USAGE))
    assert b"".join(chunk.payload for chunk in chunks) == b"ID3\x00\xff\xfb"
    assert [chunk.payload for chunk in chunks] == [*pieces, b""]
    assert chunks[-1].usage == Usage(14, output_tokens=50, audio_output_tokens=50, units=Units(characters=9))


def test_speech_as_events_passes_as_it_is() -> None:
    reader = SpeechStreamReader(make_call("audio.speech", characters=9, wants_usage=True), backend="b")
    delta, done = event("speech.audio.delta", audio="AA=="), event("speech.audio.done", usage=USAGE)
    payload = b"".join(chunk.payload for chunk in feed(reader, delta, done))
    assert payload == b"event: speech.audio.delta\ndata: %b\n\nevent: speech.audio.done\ndata: %b\n\n" % (delta, done)


def test_speech_without_a_usage_is_known_by_its_characters_where_they_are_billed() -> None:
    assert speech_usage(None, make_call("audio.speech", characters=9)) == Usage(units=Units(characters=9))
    assert speech_usage(None, make_call("audio.speech", characters=9, wants_usage=True)) is None


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], UnreadableAnswer),
        ([b"[DONE]"], UnreadableAnswer),
        ([b"not json"], UnreadableAnswer),
        ([event("error", error={"message": "no"})], UpstreamUnavailable),
        ([event("image_generation.partial_image")], StreamBroken),
        ([event("image_generation.partial_image"), b"not json"], StreamBroken),
        ([event("image_generation.partial_image"), event("error", error={"message": "no"})], StreamBroken),
    ],
)
def test_a_stream_that_does_not_end_well_is_broken(events: list[bytes], error: type[BackendError]) -> None:
    with pytest.raises(error):
        feed(MediaStreamReader(make_call("images.generations"), backend="b"), *events)


def test_audio_that_is_not_base64_is_broken() -> None:
    reader = SpeechEventReader(make_call("audio.speech"), backend="b")
    with pytest.raises(StreamBroken, match="base64"):
        feed(reader, event("speech.audio.delta", audio="!"))


def test_a_usage_that_cannot_be_counts_as_none() -> None:
    done = event("image_generation.completed", usage={"input_tokens": -1})
    [last] = feed(MediaStreamReader(make_call("images.generations"), backend="b"), done)
    assert (last.usage, last.is_usage_malformed) == (Usage(units=Units(images=1)), True)
