"""What a server refuses of a chat, a response, speech or sound is left out, then and for an hour."""

import json
from contextlib import aclosing, nullcontext

import msgspec
import pytest

from backends.errors import UpstreamRejected
from backends.openai_compatible import OPENAI_PATHS
from backends.protocol import Call, Timeouts
from backends.scripted import Outcome
from tests import read_stream
from tests.hand_clock import HandClock
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.openai_calls import JSON, make_backend, make_call

FORM = b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--xyz--\r\n'


async def test_speech_and_sound_are_asked_for_anew_an_hour_after_a_refusal() -> None:
    """One odd answer made every later cost of the model an estimate, until the next restart."""
    clock, odd = HandClock(), Raw((b'{"text": "said"}',), headers=JSON)
    refusal = Raw((b'{"error":{"message":"Unknown parameter: stream_format"}}',), status=400, headers=JSON)
    heard = Raw((b"sound",), headers={"content-type": "audio/mpeg"})
    speech = Call("audio.speech", "m", b'{"input":"a"}', True, "r-1", wants_usage=True)
    sound = Call("audio.transcriptions", "m", FORM, False, "r-1", content_type="multipart/form-data; boundary=xyz")
    plan = [refusal, heard, *[odd] * 3, heard, odd, heard, odd, odd]
    async with ScriptedProvider(*plan) as provider:
        async with aclosing(make_backend(provider, monotonic=clock)) as backend:
            for call in (speech, sound, sound, sound, speech, sound):
                await read_stream.collect(backend, call)
            clock.now += 3600
            for call in (speech, sound, sound):
                await read_stream.collect(backend, call)
        asked = [b"stream_format" in sent.body or b"verbose_json" in sent.body for sent in provider.received]
    assert asked == [True, False, False, True, *[False] * 3, True, False, True]


async def test_a_voice_that_is_refused_by_its_name_teaches_nothing_of_other_speech() -> None:
    """OpenAI repeats what it does not know: one voice of that name made the model's speech an estimate to everybody."""
    refusal = Raw((b'{"error":{"message":"Unknown voice: stream_format"}}',), status=400, headers=JSON)
    heard = Raw((b"sound",), headers={"content-type": "audio/mpeg"})
    speech = Call("audio.speech", "m", b'{"input":"a","voice":"stream_format"}', True, "r-1", wants_usage=True)
    async with ScriptedProvider(refusal, refusal, heard) as provider:
        async with aclosing(make_backend(provider)) as backend:
            with pytest.raises(UpstreamRejected):
                await backend.open(speech)
            await read_stream.collect(backend, msgspec.structs.replace(speech, body=b'{"input":"a"}'))
        assert [b'"sse"' in sent.body for sent in provider.received] == [True, False, True]


@pytest.mark.parametrize(
    "refusal",
    [
        "The encrypted content gAAA could not be verified.",
        "Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but got an array with 1.",
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with `store` "
        "set to true, or remove this item from your input.",
    ],
)
async def test_a_response_that_continues_another_servers_reasoning_is_asked_for_without_it(refusal: str) -> None:
    refused = Raw((json.dumps({"error": {"message": refusal}}).encode(),), status=400, headers=JSON)
    said = [{"role": "user", "content": "hi", "id": "m"}, {"type": "item_reference", "id": "i"}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    thoughts = [{"type": "reasoning", "id": "rs_1"}, {"type": "item_reference", "id": "rs_2"}]
    body = {"model": "auto", "input": [*said, *thoughts, call | {"id": "fc_1"}]}
    asked = Call("responses", "the-model", json.dumps(body).encode(), False, "r-1", Timeouts())
    async with ScriptedProvider(refused, Outcome(pieces=("yes",)), refused) as provider:
        backend = make_backend(provider, paths=OPENAI_PATHS)
        [chunk] = await read_stream.collect(backend, asked)
        assert chunk.has_output
        with pytest.raises(UpstreamRejected):
            await read_stream.collect(backend, asked)
        first, second, *others = (received.json["input"] for received in provider.received)
    assert (first, second, len(others)) == (body["input"], [*said, call], 2)


@pytest.mark.parametrize(
    ("beside", "requests"), [({}, 2), ({"conversation": None}, 2), ({"previous_response_id": "resp_1"}, 1)]
)
async def test_a_response_whose_call_the_client_dropped_is_asked_for_without_it(
    beside: dict[str, object], requests: int
) -> None:
    message = "No tool call found for function call output with call_id c."
    refused = Raw((json.dumps({"error": {"message": message}}).encode(),), status=400, headers=JSON)
    result = {"type": "function_call_output", "call_id": "c", "output": "7"}
    body = json.dumps({"model": "auto", "input": [result], **beside}).encode()
    asked = Call("responses", "the-model", body, False, "r-1", Timeouts())
    async with ScriptedProvider(refused, Outcome() if requests == 2 else refused) as provider:
        backend = make_backend(provider, paths=OPENAI_PATHS)
        with nullcontext() if requests == 2 else pytest.raises(UpstreamRejected):
            await read_stream.collect(backend, asked)
        inputs = [received.json["input"] for received in provider.received]
    assert inputs == [[result], [{"role": "user", "content": "7"}]][:requests]


NO_OPTIONS = b'{"error_code":"BAD_REQUEST","message":"Stream option include_usage not supported"}'
ROLE_REFUSED = b'{"error":{"message":"Invalid value: \'stream_options\'","param":"messages[0].role"}}'


async def test_a_server_without_stream_options_streams_without_them() -> None:
    """No stream of such a server arrived: the gateway asks for usage with each. Of a server of many models only one
    may be so, and the others' streams would be booked by estimates."""
    answers = (Raw((NO_OPTIONS,), status=400, headers=JSON), Outcome(), Outcome(), Outcome())
    async with ScriptedProvider(*answers) as provider, aclosing(make_backend(provider)) as backend:
        await read_stream.collect(backend, make_call())
        await read_stream.collect(backend, make_call(body=b'{"stream":true,"stream_options":{"include_usage": true}}'))
        await read_stream.collect(backend, msgspec.structs.replace(make_call(), upstream_model="another"))
        assert [b"stream_options" in request.body for request in provider.received] == [True, False, False, True]


@pytest.mark.parametrize(
    ("refusal", "options", "requests"),
    [(ROLE_REFUSED, b"null", 2), (NO_OPTIONS, b'{"include_usage":true,"x":1}', 1)],
)
async def test_usage_is_asked_for_as_long_as_nobody_refuses_that(refusal: bytes, options: bytes, requests: int) -> None:
    refused = Raw((refusal,), status=400, headers=JSON)
    async with ScriptedProvider(*[refused] * requests, Outcome()) as provider:
        async with aclosing(make_backend(provider)) as backend:
            with pytest.raises(UpstreamRejected):
                await backend.open(make_call(body=b'{"stream":true,"stream_options":%b}' % options))
            await read_stream.collect(backend, make_call())
        assert len(provider.received) == requests + 1
        assert b"include_usage" in provider.received[-1].body
