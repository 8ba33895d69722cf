"""Views of requests for images, speech, transcripts and moderation."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from backends.protocol import JSON, MediaOperation
from backends.usage import NO_UNITS, Units
from gateway.errors import InvalidRequest
from gateway.request.media_views import IMAGE_TOKENS, MOST_IMAGE_TOKENS, view_media
from gateway.request.view import RequestView
from tests.recordings import wav

FORM = "multipart/form-data; boundary=xyz"


def view(operation: MediaOperation, **body: Any) -> RequestView:
    return view_media(operation, json.dumps(body).encode(), JSON)


def form(files: Mapping[str, bytes], **fields: str) -> bytes:
    parts = [f'--xyz\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items()]
    for name, content in files.items():
        head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join(parts) + b"--xyz--\r\n"


def test_who_names_no_model_leaves_it_to_the_rules() -> None:
    assert view("moderations", input="x").model == "auto"
    assert view("moderations", input="x", model=None).model == "auto"
    assert view("moderations", input="x", model="m").model == "m"


def test_moderation_is_of_texts_and_pictures() -> None:
    parts = [{"type": "text", "text": "a" * 400}, {"type": "image_url", "image_url": {"url": "https://a.example/b"}}]
    seen = view("moderations", input=parts)
    assert (seen.input_tokens, seen.units, seen.most_output_tokens) == (101, NO_UNITS, 0)
    assert view("moderations", input=["a" * 400, "b"]).input_tokens == 101


def test_images_are_counted() -> None:
    seen = view("images.generations", prompt="a cat", n=3, quality="high")
    assert seen.units == seen.most_units == Units(images=3)
    assert (seen.output_tokens, seen.most_output_tokens) == (3 * IMAGE_TOKENS["high"], 3 * MOST_IMAGE_TOKENS)
    shown = view("images.generations", prompt="a cat", stream=True, partial_images=2)
    assert (shown.is_stream, shown.output_tokens) == (True, IMAGE_TOKENS["medium"] + 200)


@pytest.mark.parametrize(("said", "frames"), [({}, 9), ({"frame_count": 16}, 16), ({"frame_count": -1}, 1)])
def test_each_picture_of_a_gif_is_held_for(said: dict[str, int], frames: int) -> None:
    seen = view("images.generations", prompt="a cat", n=2, output_format="gif", **said)
    assert seen.most_output_tokens == 2 * frames * MOST_IMAGE_TOKENS
    if frames > 1:
        body = form({"image": b"png"}, prompt="a", output_format="gif", **{key: str(one) for key, one in said.items()})
        assert view_media("images.edits", body, FORM).most_output_tokens == frames * MOST_IMAGE_TOKENS


def test_the_model_that_writes_a_picture_as_svg_is_another_one() -> None:
    for said in ({"output_format": "svg"}, {"svg": {"model": "dear"}}):
        assert view("images.generations", prompt="a", **said).hosted_tools.asks_other_models
    body = form({"image": b"png"}, prompt="a", **{"svg[model]": "dear"})
    assert view_media("images.edits", body, FORM).hosted_tools.asks_other_models
    assert not view("images.generations", prompt="a", output_format="png", svg=None).hosted_tools.asks_other_models


def test_models_that_a_request_names_are_seen_in_every_form() -> None:
    assert view("images.generations", prompt="a", fallbacks=["dear"]).hosted_tools.asks_other_models
    assert view("moderations", input="a", router_settings_override={"fallbacks": []}).hosted_tools.asks_other_models
    body = form({"file": wav(1)}, **{"fallbacks[]": "dear"})
    assert view_media("audio.transcriptions", body, FORM).hosted_tools.asks_other_models


def test_pictures_that_are_sent_along_are_counted() -> None:
    body = form({"image[]": b"png", "mask": b"png"}, prompt="a hat", n="2", stream="true")
    seen = view_media("images.edits", body, FORM)
    assert (seen.units, seen.is_stream, seen.input_tokens) == (Units(images=2), True, 2002)
    by_address = view("images.edits", prompt="a hat", images=[{"image_url": "https://a.example/b"}])
    assert by_address.input_tokens == 1002


def test_speech_is_counted_in_characters_and_always_comes_as_it_is_made() -> None:
    seen = view("audio.speech", input="é" * 100, voice="alloy")
    assert (seen.units, seen.is_stream, seen.output_tokens) == (Units(characters=100), True, 140)
    assert seen.most_output_tokens is not None
    assert seen.most_output_tokens > 140


@pytest.mark.parametrize("operation", ["audio.transcriptions", "audio.translations"])
def test_a_recording_is_as_long_as_it_is(operation: MediaOperation) -> None:
    seen = view_media(operation, form({"file": wav(12.5)}, model="w", prompt="names"), FORM)
    assert (seen.model, seen.units, seen.most_units) == ("w", Units(0, 12_500), Units(0, 12_500))
    assert (seen.input_tokens, seen.output_tokens, seen.is_stream) == (2 + 125, 50, False)
    compressed = view_media(operation, form({"file": b"ID3" + bytes(15_997)}, stream="TRUE"), FORM)
    assert (compressed.units, compressed.most_units) == (Units(0, 1000), Units(0, 21_334))
    assert compressed.is_stream


@pytest.mark.parametrize(
    ("operation", "body", "kind", "says"),
    [
        ("moderations", b"{}", JSON, "input"),
        ("moderations", b"not json", JSON, "JSON"),
        ("images.generations", b'{"prompt": 3}', JSON, "prompt"),
        ("images.generations", b'{"prompt": "a", "n": 0}', JSON, "n: must be from 1"),
        ("audio.speech", b'{"model": "m"}', JSON, "input"),
        ("audio.transcriptions", b'{"file": "x"}', JSON, "multipart/form-data"),
        ("audio.transcriptions", form({}, model="m"), FORM, "file: send one recording"),
        ("audio.transcriptions", form({"file": b"a", "file[]": b"b"}), FORM, "file: send one recording"),
        ("images.edits", form({}, prompt="a"), FORM, "image: send"),
        ("images.edits", form({"image": b"a"}, n="two"), FORM, "n: must be a whole number"),
        ("images.edits", b"--xyz", FORM, "not valid"),
    ],
)
def test_what_is_wrong_is_named(operation: MediaOperation, body: bytes, kind: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        view_media(operation, body, kind)
