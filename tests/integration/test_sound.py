"""Speech and transcripts through the official client: bytes unchanged, booked as billed."""

import base64
import json
from typing import Any

import httpx
import openai
import pytest

from gateway.api.other_addresses import OtherAddresses
from gateway.ledger.entry import Media, Status
from tests.integration.service import Passage
from tests.integration.studio import JSON, TOKENS, answered, events
from tests.live_server import serving
from tests.recordings import wav
from tests.rig import KEY
from tests.scripted_provider import Raw

pytestmark = pytest.mark.integration


MP3 = {"content-type": "audio/mpeg"}


SOUND = [b"ID3\x04" + bytes(range(256)), b"\xff\xfb\x90" * 500]


async def test_speech_comes_as_bytes_and_its_tokens_are_known(studio: Passage) -> None:
    """The provider reports tokens only if events are requested."""
    deltas = [{"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()} for piece in SOUND]
    studio.provider.plan([events(*deltas, {"type": "speech.audio.done", "usage": TOKENS})])
    async with studio.openai() as client:
        answer = await client.audio.speech.create(model="speaks", voice="alloy", input="well said")
    assert (answer.content, answer.response.headers["content-type"]) == (b"".join(SOUND), "audio/mpeg")
    assert studio.provider.received[0].json["stream_format"] == "sse"
    entry = await studio.entry()
    assert entry.media == Media(audio_output_tokens=50, characters=9)
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.is_usage_estimated) == (14 * 600_000 + 50 * 12_000_000, False)


async def test_speech_that_is_billed_by_the_character(studio: Passage) -> None:
    studio.provider.plan([Raw(tuple(SOUND), headers={"content-type": "audio/wav"})])
    async with studio.openai() as client:
        answer = await client.audio.speech.create(
            model="speaks-by-character", voice="alloy", input="well said", response_format="wav"
        )
    assert (answer.content, answer.response.headers["content-type"]) == (b"".join(SOUND), "audio/wav")
    assert "stream_format" not in studio.provider.received[0].json
    entry = await studio.entry()
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.is_usage_estimated) == (9 * 15 * 10**6, False)


async def test_speech_of_a_server_without_events_is_estimated(studio: Passage) -> None:
    refusal = b'{"error":{"message":"Unknown parameter: stream_format","type":"invalid_request_error"}}'
    studio.provider.plan([Raw((refusal,), status=400, headers=JSON), Raw(tuple(SOUND), headers=MP3)])
    async with studio.openai() as client:
        answer = await client.audio.speech.create(model="speaks", voice="alloy", input="well said")
        again = await client.audio.speech.create(model="speaks", voice="alloy", input="well said")
    assert answer.content == again.content == b"".join(SOUND)
    asked = ["stream_format" in received.json for received in studio.provider.received]
    assert asked == [True, False, False]
    entry = studio.service.rig.ledger.entries[0]
    assert (entry.is_usage_estimated, entry.output_tokens) == (True, 13)
    assert entry.cost_lower_pico_usd is not None
    assert entry.cost_upper_pico_usd is not None
    assert entry.cost is not None
    assert 0 < entry.cost_lower_pico_usd < entry.cost.total_pico_usd < entry.cost_upper_pico_usd


async def test_speech_that_breaks_off_does_not_look_whole(studio: Passage) -> None:
    studio.provider.plan([Raw((SOUND[0],), headers=MP3, is_reset=True)])
    async with studio.openai() as client:
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            await client.audio.speech.create(model="speaks-by-character", voice="alloy", input="well said")
    entry = await studio.entry()
    assert (entry.status, entry.error) == (Status.partial, "StreamBroken")


@pytest.mark.parametrize(
    ("shape", "said", "content"),
    [
        ("json", {"text": "said", "usage": {"type": "duration", "seconds": 3}}, None),
        ("verbose_json", {"text": "said", "duration": 3.0, "segments": []}, None),
        ("text", {"text": "said", "usage": {"type": "duration", "seconds": 3}}, b"said\n"),
        ("srt", b"1\n00:00:00,000 --> 00:00:03,000\nsaid\n", b"1\n00:00:00,000 --> 00:00:03,000\nsaid\n"),
    ],
)
async def test_a_recording_is_written_down(studio: Passage, shape: Any, said: Any, content: bytes | None) -> None:
    raw_said = said if isinstance(said, bytes) else json.dumps(said).encode()
    studio.provider.plan([Raw((raw_said,), headers=JSON)])
    async with studio.openai() as client:
        raw = await client.audio.transcriptions.with_raw_response.create(
            model="listens", file=("a.wav", wav(3.0)), response_format=shape
        )
    assert raw.content == (content or raw_said)
    kind = "application/json" if content is None else "text/plain; charset=utf-8"
    assert raw.headers["content-type"] == kind
    [received] = studio.provider.received
    assert (received.path, wav(3.0) in received.body) == ("/v1/audio/transcriptions", True)
    entry = await studio.entry()
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 3 * 10**8
    assert entry.media is not None
    assert (entry.media.audio_milliseconds, entry.is_usage_estimated) == (3000, shape == "srt")


async def test_a_recording_whose_length_nobody_tells_is_estimated(studio: Passage) -> None:
    studio.provider.plan([answered({"text": "said"})])
    async with studio.openai() as client:
        answer = await client.audio.translations.create(model="listens", file=("a.wav", wav(2.0)))
    assert answer.text == "said"
    entry = await studio.entry()
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.is_usage_estimated) == (2 * 10**8, True)
    assert studio.provider.received[0].path == "/v1/audio/translations"


async def test_a_server_that_tells_the_length_in_many_words_is_asked_for_them(studio: Passage) -> None:
    """As Groq does: from the second recording on the length is known, and callers get the form that they requested."""
    verbose = {"text": "said", "duration": 5.25, "segments": []}
    studio.provider.plan([answered({"text": "said", "x_groq": {"id": "r"}}), answered(verbose)])
    async with studio.openai() as client:
        answers = [
            await client.audio.transcriptions.with_raw_response.create(model="listens", file=("a.mp3", b"ID3"))
            for _ in range(2)
        ]
    assert answers[1].content == b'{"text":"said"}'
    first, second = studio.provider.received
    assert (b"verbose_json" in first.body, b"verbose_json" in second.body) == (False, True)
    guessed, measured = studio.service.rig.ledger.entries
    assert (guessed.is_usage_estimated, measured.is_usage_estimated) == (True, False)
    assert measured.cost is not None
    assert measured.cost.total_pico_usd == 525 * 10**6


async def test_a_server_that_never_tells_the_length_is_asked_as_its_callers_ask(studio: Passage) -> None:
    silent, refusal = answered({"text": "said"}), b'{"error":{"message":"response_format: only json","type":"invalid"}}'
    studio.provider.plan([silent, Raw((refusal,), status=400, headers=JSON), silent, silent])
    async with studio.openai() as client:
        for _ in range(3):
            answer = await client.audio.transcriptions.create(model="listens", file=("a.wav", wav(1.0)))
            assert answer.text == "said"
    asked = [b"verbose_json" in received.body for received in studio.provider.received]
    assert asked == [False, True, False, False]


async def test_a_model_that_cannot_stream_answers_whole(studio: Passage) -> None:
    """According to OpenAI, whisper-1 ignores the field."""
    studio.provider.plan([answered({"text": "said", "usage": {"type": "duration", "seconds": 1}})])
    async with studio.openai() as client:
        raw = await client.audio.transcriptions.with_raw_response.create(
            model="listens", file=("a.wav", wav(1.0)), stream=True
        )
        assert (await raw.http_response.aread()) == b'{"text": "said", "usage": {"type": "duration", "seconds": 1}}'
    assert raw.headers["content-type"] == "application/json"
    entry = await studio.entry()
    assert (entry.status, entry.is_usage_estimated) == (Status.completed, False)


async def test_a_transcript_comes_in_words(studio: Passage) -> None:
    usage = {"type": "tokens", **TOKENS, "input_token_details": {"audio_tokens": 10, "text_tokens": 4}}
    studio.provider.plan(
        [
            events(
                {"type": "transcript.text.delta", "delta": "said"},
                {"type": "transcript.text.done", "text": "said", "usage": usage},
            )
        ]
    )
    async with studio.openai() as client:
        stream = await client.audio.transcriptions.create(
            model="listens-by-token", file=("a.wav", wav(1.0)), stream=True
        )
        kinds = [event.type async for event in stream]
    assert kinds == ["transcript.text.delta", "transcript.text.done"]
    entry = await studio.entry()
    assert entry.cost is not None
    assert entry.cost.input_pico_usd == 10 * 6_000_000 + 4 * 2_500_000
    assert entry.media == Media(audio_input_tokens=10)


async def test_who_leaves_while_it_is_read_aloud_pays_for_what_was_asked(studio: Passage) -> None:
    studio.provider.plan([Raw((SOUND[0], *([SOUND[1]] * 200)), headers=MP3, pause_seconds=0.05)])
    async with httpx.AsyncClient(
        base_url=studio.url, headers={"authorization": f"Bearer {KEY}"}, timeout=120
    ) as client:
        asked = {"model": "speaks-by-character", "voice": "alloy", "input": "well said"}
        async with client.stream("POST", "/v1/audio/speech", json=asked) as answer:
            async for piece in answer.aiter_raw():
                assert piece
                break
    entry = await studio.entry()
    assert (entry.status, entry.is_usage_estimated) == (Status.cancelled, True)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 9 * 15 * 10**6


async def test_an_equal_form_under_one_idempotency_key_is_served_once(studio: Passage) -> None:
    studio.provider.plan([answered({"text": "said", "usage": {"type": "duration", "seconds": 2}})])
    async with studio.openai() as client:
        body = {"content-type": "multipart/form-data; boundary=xyz", "idempotency-key": "k"}
        form = (
            b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nlistens\r\n--xyz\r\nContent-Disposition: '
            b'form-data; name="file"; filename="a.wav"\r\n\r\n' + wav(2.0) + b"\r\n--xyz--\r\n"
        )
        answers = [
            await client.post("/audio/transcriptions", content=form, options={"headers": body}, cast_to=httpx.Response)
            for _ in range(2)
        ]
    assert answers[0].content == answers[1].content
    assert len(studio.provider.received) == 1


async def test_who_asks_again_with_an_idempotency_key_may_draw_another_boundary(studio: Passage) -> None:
    """As with the official clients, which write the form anew for each attempt."""
    studio.provider.plan([answered({"text": "said", "usage": {"type": "duration", "seconds": 2}})])
    once = {"idempotency-key": "k"}
    async with studio.openai() as client:
        for _ in range(2):
            await client.audio.transcriptions.create(model="listens", file=("a.wav", wav(2.0)), extra_headers=once)
        with pytest.raises(openai.APIStatusError, match="idempotency key was already used with a different request"):
            await client.audio.transcriptions.create(model="listens", file=("a.wav", wav(2.5)), extra_headers=once)
    assert len(studio.provider.received) == 1


async def test_an_equal_form_is_found_in_the_response_cache(studio: Passage) -> None:
    studio.provider.plan([answered({"text": "said", "usage": {"type": "duration", "seconds": 2}})])
    kept = {"x-breakeven-cache": "on"}
    async with studio.openai() as client:
        for _ in range(2):
            await client.audio.transcriptions.create(model="listens", file=("a.wav", wav(2.0)), extra_headers=kept)
    assert len(studio.provider.received) == 1


async def test_azures_address_says_the_model_of_a_form_too(studio: Passage) -> None:
    """Handwritten requests to Azure name no model in the form."""
    said = {"text": "said", "usage": {"type": "duration", "seconds": 2}}
    studio.provider.plan([answered(said), answered(said)])
    async with (
        serving(OtherAddresses(studio.service.app)) as url,
        httpx.AsyncClient(base_url=url, headers={"api-key": KEY}, timeout=120) as client,
    ):
        for fields in ({}, {"model": "listens"}):
            answer = await client.post(
                "/openai/deployments/listens-by-token/audio/transcriptions?api-version=2024-10-21",
                data=fields,
                files={"file": ("a.wav", wav(2.0))},
            )
            assert (answer.status_code, answer.headers["x-breakeven-model"]) == (200, "listens-by-token")
