"""Views of requests for images, speech, transcripts and moderation for the decision; for rankings see rerank_view.py.

Their cost depends on the number of images, the length of the recording or the length of the text. Each is estimated
here for the decision, and bounded from above for budgets. What is charged is what the provider reports.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from backends.formats.form_splice import NotAForm, find_fields, is_form, text_fields
from backends.protocol import MediaOperation
from backends.usage import Units
from gateway.errors import InvalidRequest
from gateway.request.bodies import ABSENT, NamedModels
from gateway.request.encodings import unreadable
from gateway.request.field_checks import checked_choices, invalid_field, whole_number
from gateway.request.hosted_tools import NO_TOOLS, OTHER_MODELS
from gateway.request.many_values import require_bearable
from gateway.request.recordings import length_of
from gateway.request.rerank_view import view_rerank
from gateway.request.view import RequestView, estimate_tokens
from gateway.routing.rules import AUTO

IMAGE_TOKENS: Final = {"low": 400, "medium": 1_600, "high": 6_250}
"""Output tokens of one image of OpenAI's gpt-image-1 at its largest size, by `quality`, from its guide to image
generation. Its successors and other sizes take fewer, or up to MOST_IMAGE_TOKENS."""
MOST_IMAGE_TOKENS: Final = 16_384
FRAMES: Final = 9
"""Images in a GIF without a `frame_count`. OpenAI does not say what they cost: each is held like an image."""
MOST_FRAMES: Final = 16
PARTIAL_IMAGE_TOKENS: Final = 100
"""Output tokens of each partial image of a stream, from the same guide."""
TOKENS_PER_SENT_IMAGE: Final = 1_000
MOST_TOKENS_PER_SENT_IMAGE: Final = 10_000
SPEECH_TOKENS_PER_CHARACTER: Final = 1.4
"""gpt-4o-mini-tts: $0.015 per minute at $12 per million tokens is 1,250 tokens, and a minute is some 900 characters."""
MOST_SPEECH_TOKENS_PER_CHARACTER: Final = 8
MOST_SPEECH_TOKENS: Final = 1_000
"""In addition to those per character: pauses, and numbers spoken as words."""
AUDIO_TOKENS_PER_SECOND: Final = 10
"""Input tokens per second for OpenAI's models; Gemini's take 32."""
MOST_AUDIO_TOKENS_PER_SECOND: Final = 40
WRITTEN_TOKENS_PER_SECOND: Final = 4
MOST_WRITTEN_TOKENS_PER_SECOND: Final = 15
"""Upper bound of the above, which is 150 words per minute: timed words and speaker names are billed as text too."""


class ModerationPart(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class ModerationBody(msgspec.Struct):
    input: str | list[str | ModerationPart]
    model: str | None = None


class ImageBody(msgspec.Struct):
    prompt: str
    model: str | None = None
    n: int | None = None
    quality: str | None = None
    stream: bool | None = False
    partial_images: int | None = None
    output_format: str | None = None
    frame_count: int | None = None
    svg: msgspec.Raw = ABSENT
    images: list[msgspec.Raw] | None = None


class SpeechBody(msgspec.Struct):
    input: str
    model: str | None = None
    instructions: str | None = None


def view_media(operation: MediaOperation, body: bytes, content_type: str) -> RequestView:
    """Raises InvalidRequest naming the field that is wrong."""
    if operation in FORMS and (is_form(content_type) or operation != "images.edits"):
        view = FORMS[operation](operation, body, content_type)
        names = {field.name.partition("[")[0] for field in find_fields(body, content_type)}
        return _with_others(view) if names & set(NamedModels.__struct_fields__) else view
    require_bearable(body)
    try:
        view = VIEWS[operation](operation, body)
        return _with_others(view) if NAMED.decode(body).are_named else view
    except msgspec.ValidationError as error:
        raise invalid_field(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(body, error) from error


def _with_others(view: RequestView) -> RequestView:
    return msgspec.structs.replace(view, hosted_tools=OTHER_MODELS)


def _view_moderation(operation: MediaOperation, body: bytes) -> RequestView:
    asked = MODERATION.decode(body)
    parts = [asked.input] if isinstance(asked.input, str) else asked.input
    texts = [part if isinstance(part, str) else part.text or "" for part in parts]
    return RequestView(
        operation=operation,
        model=_named(asked.model),
        input_tokens=estimate_tokens(texts),
        most_input_tokens=len(body),
        most_output_tokens=0,
    )


def _view_image(operation: MediaOperation, body: bytes) -> RequestView:
    asked = IMAGE.decode(body)
    has_author = bytes(asked.svg) not in (b"", b"null")
    return _view_drawing(operation, asked, has_author=has_author, sent_images=len(asked.images or ()))


def _view_speech(operation: MediaOperation, body: bytes) -> RequestView:
    asked = SPEECH.decode(body)
    characters = len(asked.input)
    texts = [asked.input, asked.instructions or ""]
    return RequestView(
        operation=operation,
        model=_named(asked.model),
        is_stream=True,
        input_tokens=estimate_tokens(texts),
        most_input_tokens=sum(map(len, texts)) * 4,
        output_tokens=math.ceil(characters * SPEECH_TOKENS_PER_CHARACTER),
        most_output_tokens=characters * MOST_SPEECH_TOKENS_PER_CHARACTER + MOST_SPEECH_TOKENS,
        units=(units := Units(characters=characters)),
        most_units=units,
    )


def _view_edit(operation: MediaOperation, body: bytes, content_type: str) -> RequestView:
    fields, files = _read_form(body, content_type)
    if not any(name.startswith("image") for name in files):
        raise InvalidRequest("image: send the image to edit in a form part of this name.", param="image")
    asked = ImageBody(
        prompt=fields.get("prompt", ""),
        model=fields.get("model"),
        n=_whole_number("n", fields),
        quality=fields.get("quality"),
        stream=_is_true(fields.get("stream")),
        partial_images=_whole_number("partial_images", fields),
        output_format=fields.get("output_format"),
        frame_count=_whole_number("frame_count", fields),
    )
    has_author = any(name.startswith("svg") for name in (*fields, *files))
    return _view_drawing(operation, asked, has_author=has_author, sent_images=sum(map(len, files.values())))


def _view_recording(operation: MediaOperation, body: bytes, content_type: str) -> RequestView:
    fields, files = _read_form(body, content_type)
    recordings = files.get("file", [])
    if len(recordings) != 1:
        raise InvalidRequest("file: send one recording in a form part of this name.", param="file")
    length = length_of(recordings[0])
    prompt = estimate_tokens([fields["prompt"]]) if fields.get("prompt") else 0
    seconds, most_seconds = length.usual / 1000, length.most / 1000
    return RequestView(
        operation=operation,
        model=_named(fields.get("model")),
        is_stream=_is_true(fields.get("stream")),
        input_tokens=prompt + math.ceil(seconds * AUDIO_TOKENS_PER_SECOND),
        most_input_tokens=prompt * 4 + math.ceil(most_seconds * MOST_AUDIO_TOKENS_PER_SECOND),
        output_tokens=math.ceil(seconds * WRITTEN_TOKENS_PER_SECOND),
        most_output_tokens=math.ceil(most_seconds * MOST_WRITTEN_TOKENS_PER_SECOND) + MOST_SPEECH_TOKENS,
        units=Units(audio_milliseconds=length.usual),
        most_units=Units(audio_milliseconds=length.most),
    )


def _view_drawing(operation: MediaOperation, asked: ImageBody, *, has_author: bool, sent_images: int) -> RequestView:
    """`has_author`: a model that writes SVG is named."""
    images, text = checked_choices("n", asked.n), estimate_tokens([asked.prompt])
    frames = min(max(asked.frame_count or FRAMES, 1), MOST_FRAMES) if asked.output_format == "gif" else 1
    shown = PARTIAL_IMAGE_TOKENS * min(max(asked.partial_images or 0, 0), 100)
    each = IMAGE_TOKENS.get(asked.quality or "", IMAGE_TOKENS["medium"])
    return RequestView(
        operation=operation,
        model=_named(asked.model),
        is_stream=bool(asked.stream),
        input_tokens=text + sent_images * TOKENS_PER_SENT_IMAGE,
        most_input_tokens=len(asked.prompt) * 4 + sent_images * MOST_TOKENS_PER_SENT_IMAGE,
        output_tokens=images * (frames * each + shown),
        most_output_tokens=images * (frames * MOST_IMAGE_TOKENS + shown),
        units=(units := Units(images=images)),
        most_units=units,
        hosted_tools=OTHER_MODELS if has_author or asked.output_format == "svg" else NO_TOOLS,
    )


def _named(model: str | None) -> str:
    """OpenAI has a default model for requests that name none; here the rules choose one."""
    return AUTO if model is None else model


def _read_form(body: bytes, content_type: str) -> tuple[dict[str, str], dict[str, list[bytes]]]:
    """Texts and files by field name, without the brackets of list names. Raises InvalidRequest."""
    try:
        fields = find_fields(body, content_type)
        texts = text_fields(body, fields)
    except NotAForm as error:
        raise InvalidRequest(
            f"The body is not valid: {error}. This endpoint takes multipart/form-data.", code="invalid_body"
        ) from error
    files: dict[str, list[bytes]] = {}
    for field in fields:
        if field.is_file:
            files.setdefault(field.name.removesuffix("[]"), []).append(body[field.start : field.end])
    return texts, files


def _whole_number(name: str, fields: Mapping[str, str]) -> int | None:
    text = fields.get(name)
    number = None if text is None else whole_number(text)
    if text is not None and number is None:
        raise InvalidRequest(f"{name}: must be a whole number.", param=name)
    return number


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("true", "1")


NAMED: Final = msgspec.json.Decoder(NamedModels)
MODERATION: Final = msgspec.json.Decoder(ModerationBody)
IMAGE: Final = msgspec.json.Decoder(ImageBody)
SPEECH: Final = msgspec.json.Decoder(SpeechBody)
VIEWS: Final[dict[MediaOperation, Callable[[MediaOperation, bytes], RequestView]]] = {
    "moderations": _view_moderation,
    "rerank": lambda _, body: view_rerank(body),
    "images.generations": _view_image,
    "images.edits": _view_image,
    "audio.speech": _view_speech,
}
FORMS: Final[dict[MediaOperation, Callable[[MediaOperation, bytes, str], RequestView]]] = {
    "images.edits": _view_edit,
    "audio.transcriptions": _view_recording,
    "audio.translations": _view_recording,
}
