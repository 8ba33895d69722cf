"""The official OpenAI client where it draws, speaks, listens and has texts judged."""

import base64
import io
import wave
from collections.abc import Iterator

import openai
import pytest
from running_gateway import Gateway

HEARD = "The quick brown fox."


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key=gateway.key) as made:
        yield made


def recording(seconds: int) -> io.BytesIO:
    """Silence of 16,000 samples a second, named as the client wants it."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(seconds * 32_000))
    named = io.BytesIO(written.getvalue())
    named.name = "silence.wav"
    return named


def test_images(client: openai.OpenAI) -> None:
    answer = client.images.generate(model="draws", prompt="a pixel", n=2)
    assert len(answer.data or []) == 2
    assert answer.usage is not None
    assert answer.usage.output_tokens == 1056


def test_an_image_comes_in_parts(client: openai.OpenAI) -> None:
    events = list(client.images.generate(model="draws", prompt="a pixel", stream=True, partial_images=1))
    assert [event.type for event in events] == ["image_generation.partial_image", "image_generation.completed"]


def test_an_edit(client: openai.OpenAI) -> None:
    pixel = client.images.generate(model="draws", prompt="a pixel")
    [drawn] = pixel.data or []
    sent = ("a.png", base64.b64decode(drawn.b64_json or ""), "image/png")
    assert len(client.images.edit(model="draws", image=[sent, sent], prompt="brighter").data or []) == 1


def test_speech(client: openai.OpenAI) -> None:
    spoken = client.audio.speech.create(model="speaks", voice="alloy", input=HEARD)
    with client.audio.speech.with_streaming_response.create(model="speaks", voice="alloy", input=HEARD) as stream:
        pieces = b"".join(stream.iter_bytes())
    assert spoken.content == pieces
    assert pieces.startswith(b"ID3")


def test_a_transcript_costs_what_its_seconds_do(client: openai.OpenAI) -> None:
    raw = client.audio.transcriptions.with_raw_response.create(model="listens", file=recording(60))
    assert raw.parse().text == HEARD
    assert raw.headers["x-breakeven-cost-usd"] == "0.0061", "61 seconds with the head of the file, at $0.006 a minute"


def test_a_transcript_in_other_shapes(client: openai.OpenAI) -> None:
    verbose = client.audio.transcriptions.create(model="listens", file=recording(2), response_format="verbose_json")
    assert verbose.duration == 3
    text = client.audio.transcriptions.create(model="listens", file=recording(2), response_format="text")
    assert text == HEARD + "\n"
    events = list(client.audio.transcriptions.create(model="listens", file=recording(2), stream=True))
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert client.audio.translations.create(model="listens", file=recording(2)).text == HEARD


def test_moderation_without_a_model(client: openai.OpenAI) -> None:
    answer = client.moderations.create(input=["be kind", "be brief"])
    assert [result.flagged for result in answer.results] == [False, False]


def test_a_model_that_cannot(client: openai.OpenAI, gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError, match="it writes text"):
        client.images.generate(model=gateway.model, prompt="a pixel")


def test_a_spent_budget(gateway: Gateway) -> None:
    client = openai.OpenAI(base_url=gateway.base_url, api_key=gateway.poor_key, max_retries=0)
    with client, pytest.raises(openai.RateLimitError) as caught:
        client.images.generate(model="draws", prompt="a pixel")
    assert caught.value.code == "insufficient_quota"
