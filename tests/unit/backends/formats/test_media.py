"""Images, speech, transcripts and moderations: their requests, and the usage by which answers are billed."""

import json
from typing import Any

import msgspec
import pytest

from backends.errors import UnreadableAnswer, UpstreamRejected, UpstreamUnavailable
from backends.formats.media import TEXT, MediaAsked, ask, read_answer, transcript_usage
from backends.formats.usage_wire import MalformedUsage
from backends.protocol import EVENT_STREAM, JSON, Call, Chunk, MediaOperation
from backends.usage import Units, Usage

FORM = "multipart/form-data; boundary=xyz"
GPT_IMAGE = {
    "total_tokens": 1391,
    "input_tokens": 335,
    "output_tokens": 1056,
    "input_tokens_details": {"text_tokens": 12, "image_tokens": 323},
}
TOKENS = {"type": "tokens", "input_tokens": 14, "input_token_details": {"text_tokens": 4, "audio_tokens": 10}}


def make_call(operation: MediaOperation, body: bytes = b"{}", **more: Any) -> Call:
    return Call(operation, "upstream", body, more.pop("is_stream", False), "r1", **more)


def form(**fields: str) -> bytes:
    parts = [f'--xyz\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    return ("".join(parts) + "--xyz--\r\n").encode()


def read(operation: MediaOperation, answer: object, asked: MediaAsked | None = None) -> Chunk:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(body, asked or MediaAsked(b"", "json"), make_call(operation), backend="b")


def test_only_the_model_of_a_json_body_is_changed() -> None:
    asked = ask(make_call("images.generations", b'{ "prompt":"a",  "model": "auto" }'))
    assert asked == MediaAsked(b'{ "prompt":"a",  "model": "upstream" }', "json", JSON)
    assert ask(make_call("moderations", b'{"input":"a"}')).body == b'{"input":"a","model":"upstream"}'


def test_speech_is_asked_for_as_events_where_its_tokens_are_billed() -> None:
    body = b'{"input":"a","model":"auto","response_format":"wav"}'
    asked = ask(make_call("audio.speech", body, wants_usage=True))
    assert asked.body == b'{"input":"a","model":"upstream","response_format":"wav","stream_format":"sse"}'
    assert (asked.shape, asked.content_type, asked.asks_for_events) == ("audio", "audio/wav", True)
    plain = ask(make_call("audio.speech", b'{"input":"a","model":"auto"}'))
    assert (plain.body, plain.content_type) == (b'{"input":"a","model":"upstream"}', "audio/mpeg")
    own = ask(make_call("audio.speech", b'{"input":"a","stream_format":"sse"}', wants_usage=True))
    assert (own.shape, own.content_type, own.asks_for_events) == ("events", EVENT_STREAM, False)


@pytest.mark.parametrize(
    ("given", "sent", "shape", "content_type"),
    [("json", "json", "json", JSON), ("text", "json", "text", TEXT), ("srt", "srt", "captions", TEXT)],
)
def test_a_transcript_as_text_is_asked_for_as_json(given: str, sent: str, shape: str, content_type: str) -> None:
    call = make_call("audio.transcriptions", form(model="auto", response_format=given), content_type=FORM)
    asked = ask(call)
    assert (asked.body, asked.content_type) == (form(model="upstream", response_format=sent), content_type)
    assert (asked.shape, asked.words) == (shape, "" if shape == "captions" else "few")


def test_all_that_is_known_may_be_asked_for_where_little_is_wanted() -> None:
    call = make_call("audio.transcriptions", form(model="auto"), content_type=FORM)
    asked = ask(call, is_verbose=True)
    assert asked.body == form(response_format="verbose_json", model="upstream")
    said = {"text": "said", "duration": 8.5, "segments": [{"id": 0}]}
    chunk = read_answer(json.dumps(said).encode(), asked, call, backend="b")
    assert (chunk.payload, chunk.usage) == (b'{"text":"said"}', Usage(units=Units(0, 8500)))
    captions = make_call("audio.transcriptions", form(model="auto", response_format="srt"), content_type=FORM)
    assert b"verbose" not in ask(captions, is_verbose=True).body
    own = make_call("audio.transcriptions", form(model="auto", response_format="verbose_json"), content_type=FORM)
    assert ask(own, is_verbose=True) == ask(own)


@pytest.mark.parametrize(
    ("body", "kind"), [(b"[]", JSON), (b"--xyz", FORM), (b'{"a":1,"a":2}', JSON), (b'{"Model":"m"}', JSON)]
)
def test_a_body_that_cannot_be_read_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(UpstreamRejected):
        ask(make_call("images.edits", body, content_type=kind))


def test_images_are_billed_by_tokens_or_counted() -> None:
    two = [{"b64_json": "AAAA"}, {"b64_json": "AAAA"}]
    chunk = read("images.generations", {"created": 1, "data": two, "usage": GPT_IMAGE})
    assert chunk.usage == Usage(
        335, output_tokens=1056, image_input_tokens=323, image_output_tokens=1056, units=Units(images=2)
    )
    author = {
        "model": "another",
        "input_tokens": 900,
        "output_tokens": 4000,
        "reasoning_tokens": 0,
        "total_tokens": 4900,
    }
    svg = read("images.generations", {"data": two, "usage": GPT_IMAGE, "svg_usage": author})
    assert svg.usage == Usage(
        *(335, 0, 0, 0, 1056), image_input_tokens=323, image_output_tokens=1056, other_tool_calls=1, units=Units(2)
    )
    told = {**GPT_IMAGE, "output_tokens_details": {"text_tokens": 56, "image_tokens": 1000}}
    usage = read("images.edits", {"data": two, "usage": told}).usage
    assert usage is not None
    assert usage.image_output_tokens == 1000
    assert read("images.generations", {"data": two}).usage == Usage(units=Units(images=2))
    assert (chunk.is_done, chunk.has_output, chunk.output_characters) == (True, True, 0)


LASTED = Units(0, 12_000)


@pytest.mark.parametrize(
    ("wire", "duration", "usage"),
    [
        ({**TOKENS, "output_tokens": 45}, None, Usage(14, output_tokens=45, audio_input_tokens=10)),
        ({"type": "duration", "seconds": 9}, 8.47, Usage(units=Units(0, 9000))),
        (None, 8.47, Usage(units=Units(0, 8470))),
        (None, "8.470000267028809", Usage(units=Units(0, 8470))),
        (
            {"prompt_audio_seconds": 203, "prompt_tokens": 4, "total_tokens": 3264, "completion_tokens": 635},
            None,
            Usage(2629, output_tokens=635, audio_input_tokens=2625, units=Units(0, 203_000)),
        ),
        *(
            (
                {"prompt_audio_seconds": 12, "prompt_tokens": 3, "total_tokens": 419, "completion_tokens": 41}
                | {"prompt_tokens_details": details, "service_tier": "standard"},
                None,
                Usage(378, cached, output_tokens=41, audio_input_tokens=375, service_tier="standard", units=LASTED),
            )
            for cached, details in ((0, {"cached_tokens": 0, "audio_tokens": 375}), (368, {"cached_tokens": 368}))
        ),
        (None, None, None),
        ({"type": "duration"}, None, None),
    ],
)
def test_a_transcript_is_billed_by_tokens_or_by_its_length(wire: object, duration: object, usage: Usage | None) -> None:
    assert transcript_usage(wire, duration) == usage


@pytest.mark.parametrize(
    ("wire", "duration"),
    [("x", None), ({"seconds": -1}, None), ({"seconds": "long"}, None), (None, 1e300), (None, "nan"), (None, 10**400)],
)
def test_a_length_that_cannot_be_is_malformed(wire: object, duration: object) -> None:
    with pytest.raises(MalformedUsage):
        transcript_usage(wire, duration)


def test_a_malformed_usage_counts_as_none() -> None:
    chunk = read("audio.transcriptions", {"text": "a", "usage": {"type": "tokens", "input_tokens": -4}})
    assert (chunk.usage, chunk.is_usage_malformed) == (None, True)


def test_a_text_is_handed_on_alone() -> None:
    as_text = MediaAsked(b"", "text", TEXT)
    chunk = read("audio.transcriptions", {"text": "said é", "usage": {"type": "duration", "seconds": 2}}, as_text)
    assert (chunk.payload, chunk.usage) == ("said é\n".encode(), Usage(units=Units(0, 2000)))
    assert read("audio.transcriptions", b"said", as_text).payload == b"said"  # a server that always answers with text


def test_captions_end_when_they_end() -> None:
    captions = b"1\r\n00:00:00,000 --> 00:00:04,120\r\nsaid\r\n\r\n2\r\n00:00:05,000 --> 01:02:03,004\r\nmore\r\n"
    chunk = read("audio.transcriptions", captions, MediaAsked(b"", "captions", TEXT))
    assert (chunk.payload, chunk.usage) == (captions, Usage(units=Units(0, 3_723_004), is_estimated=True))
    vtt = read("audio.transcriptions", b"WEBVTT\n\n00:01.000 --> 00:02.500\nx", MediaAsked(b"", "captions", TEXT))
    assert vtt.usage == Usage(units=Units(0, 2500), is_estimated=True)
    assert read("audio.transcriptions", b"WEBVTT\n", MediaAsked(b"", "captions", TEXT)).usage is None


def test_moderation_tells_its_tokens_where_it_has_any() -> None:
    assert read("moderations", {"id": "m", "results": [{"flagged": False}]}).usage is None
    told = {"results": [{}], "usage": {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}}
    assert read("moderations", told).usage == Usage(7)


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("images.generations", {"created": 1}),
        ("moderations", {"data": []}),
        ("audio.transcriptions", {"usage": {"type": "duration", "seconds": 2}}),
        ("images.generations", b"<html>"),
        ("images.generations", b'{"data": 3}'),
    ],
)
def test_an_answer_without_what_was_asked_for_is_none(operation: MediaOperation, answer: object) -> None:
    with pytest.raises(UnreadableAnswer):
        read(operation, answer)


def test_an_error_in_the_answer_is_one() -> None:
    with pytest.raises(UpstreamUnavailable):
        read("images.generations", {"error": {"message": "no"}})


def test_pictures_are_not_looked_into() -> None:
    assert msgspec.json.decode(read("images.generations", {"data": [{"b64_json": "A" * 100_000}]}).payload)
