"""Fields that a model refuses whose deployment has a name of its own are left out, then and in later chats; and what
else is sent again through litellm."""

import json
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from backends.dialects import PLAIN, Dialect, dialect_of
from backends.errors import UpstreamRejected
from backends.formats.refused_fields import refused_field, without_refused
from backends.litellm_backend import LitellmBackend
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call
from backends.scripted import Outcome
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.fake_litellm import PLAIN as ANSWER
from tests.unit.backends.fake_litellm import error_named

NO_LIMIT = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
NO_HEAT = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."
)
OF_OTHERS = [
    "invalid temperature: only 1 is allowed for this model",
    "`temperature` is deprecated for this model.",
    "BAD_REQUEST: Model eu.anthropic.claude-opus-5 does not support the temperature parameter.",
]
NO_STOP = "Unsupported parameter: 'stop' is not supported with this model."
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "temperature": 0.2}
TAKEN = {"max_completion_tokens": 9}


def ask(upstream_model: str = "prod", **fields: object) -> Call:
    return Call(
        "chat.completions", upstream_model, json.dumps({"model": "auto", **ASKED, **fields}).encode(), False, "r-1"
    )


def refusal(message: str) -> Raw:
    body = json.dumps({"error": {"message": message, "param": "p", "code": "unsupported_parameter"}})
    return Raw((body.encode(),), status=400, headers={"content-type": "application/json"})


def tuned(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in fields if name in ("max_tokens", "max_completion_tokens", "temperature")}


@pytest.mark.parametrize("dialect", [PLAIN, dialect_of("openai")])
async def test_a_chat_is_asked_again_without_them_and_the_next_at_once(dialect: Dialect) -> None:
    """Azure's deployments of GPT-5 refused every chat of an app that sets a limit or a temperature. GPT-5.2 takes a
    temperature at another effort, and who asks at that does not lose it for what one refusal said at another."""
    refused = [NO_LIMIT, NO_HEAT] if dialect is PLAIN else [NO_HEAT]
    async with ScriptedProvider(*map(refusal, refused), *[Outcome()] * 4) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, dialect=dialect)) as backend:
            for call in (ask(), ask(), ask("another"), ask(reasoning_effort="none")):
                await read_stream.collect(backend, call)
        told = [tuned(request.json) for request in provider.received]
    assert told[len(refused) :] == [TAKEN, TAKEN, told[0], told[0]]


async def test_what_is_refused_at_the_effort_that_is_told_instead_is_left_out_with_it_in_the_next() -> None:
    """Each chat of an agent was refused twice: neither its effort nor its temperature was remembered."""
    no_effort = refusal("Unexpected reasoning effort high. Supported types are medium and low.")
    steps = (no_effort, refusal(NO_HEAT), Outcome(), no_effort, Outcome(), Outcome())
    async with ScriptedProvider(*steps) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for _ in range(3):
                await read_stream.collect(backend, ask(reasoning_effort="high"))
        told = [(one.json["reasoning_effort"], one.json.get("temperature")) for one in provider.received]
    first, second = ("high", 0.2), ("medium", None)
    assert told == [first, ("medium", 0.2), second, first, second, second]


@pytest.mark.parametrize("message", OF_OTHERS)
async def test_kimi_and_claude_under_other_names_say_it_in_other_words(message: str) -> None:
    async with ScriptedProvider(refusal(message), *[Outcome()] * 2) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (ask(), ask()):
                await read_stream.collect(backend, call)
        assert ["temperature" in request.json for request in provider.received] == [True, False, False]


@pytest.mark.parametrize(
    "message",
    [
        "Validation: Unsupported parameter(s): `prompt_cache_key`",
        "Validation: Unsupported parameter(s): prompt_cache_key",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'prompt_cache_key'), 'msg': 'Extra inputs are not permitted'}]",
    ],
)
async def test_nvidia_is_not_told_again_what_agents_send_for_openais_cache(message: str) -> None:
    """Codex, Kimi Code and others send it with each request, and each was asked of another model."""
    async with ScriptedProvider(refusal(message), *[Outcome()] * 2) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (ask(prompt_cache_key="k"), ask(prompt_cache_key="k")):
                await read_stream.collect(backend, call)
        told = [request.json for request in provider.received]
    assert told[1] == told[2] == {name: told[0][name] for name in told[0] if name != "prompt_cache_key"}


@pytest.mark.parametrize(
    ("message", "dialect", "model"),
    [(NO_STOP, PLAIN, "auto"), ("temperature is odd", PLAIN, "auto"), (NO_HEAT, dialect_of("openai"), "prod")],
)
async def test_what_changes_the_answer_and_what_openai_is_asked_in_its_own_words_is_refused(
    message: str, dialect: Dialect, model: str
) -> None:
    async with ScriptedProvider(refusal(message)) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, dialect=dialect)) as backend:
            with pytest.raises(UpstreamRejected):
                await backend.open(ask(model=model, stop="x"))
        assert len(provider.received) == 1


@pytest.mark.parametrize("before", ["", "invalid heat: only 1 is allowed for this model. "])
async def test_an_error_that_repeats_the_chat_says_nothing_about_others(before: str) -> None:
    said = [{"role": "user", "content": before + NO_HEAT}]
    async with ScriptedProvider(refusal(NO_HEAT), Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            await read_stream.collect(backend, ask(messages=said))
            await read_stream.collect(backend, ask())
        assert ["temperature" in request.json for request in provider.received] == [True, False, True]


async def test_through_litellm_too() -> None:
    asked: list[dict[str, Any]] = []

    async def complete(**arguments: Any) -> object:
        asked.append(tuned(arguments))
        for name, message in (("max_tokens", NO_LIMIT), ("temperature", NO_HEAT)):
            if name in arguments:
                raise error_named("BadRequestError", 400, message=f"AzureException BadRequestError - {message}")
        return ANSWER

    backend = LitellmBackend("b", complete=complete)
    for _ in range(2):
        await read_stream.collect(backend, ask("azure/prod"))
    assert asked[2:] == [TAKEN, TAKEN]


async def test_messages_that_a_model_refuses_are_sent_again_through_litellm_once() -> None:
    message = "The image was specified using the image/png media type, but the image appears to be a image/jpeg image"
    asked: list[str] = []

    async def complete(**arguments: Any) -> object:
        asked.append(arguments["messages"][0]["content"][0]["image_url"]["url"])
        raise error_named("BadRequestError", 400, message=message)

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,/9j/4AAQ"}}
    with pytest.raises(UpstreamRejected):
        await LitellmBackend("b", complete=complete).open(
            ask("bedrock/claude", messages=[{"role": "user", "content": [picture]}])
        )
    assert asked == ["data:image/png;base64,/9j/4AAQ", "data:image/jpeg;base64,/9j/4AAQ"]


def test_a_newer_limit_is_kept_and_no_object_is_left_alone() -> None:
    assert refused_field(NO_LIMIT.encode()) == "max_tokens"
    both = b'{"max_tokens":1,"max_completion_tokens":2}'
    assert json.loads(without_refused(both, {"max_tokens"})) == {"max_completion_tokens": 2}
    empty = b'{"max_tokens":1,"max_completion_tokens":null}'
    assert json.loads(without_refused(empty, {"max_tokens"})) == {"max_completion_tokens": 1}
    assert without_refused(b"[]", {"max_tokens"}) == b"[]"


async def test_a_response_is_asked_again_without_them_too_and_the_next_at_once() -> None:
    """Each turn of an agent was refused twice. Not those at another effort, nor a count, which may refuse more."""
    no_top = "Unsupported parameter: 'top_p' is not supported with this model."
    body = {"model": "auto", "input": "hi", "temperature": 0.2, "top_p": 0.5}
    call = Call("responses", "prod", json.dumps(body).encode(), False, "r-1")
    count = msgspec.structs.replace(call, operation="responses.input_tokens")
    counted = Raw((b'{"input_tokens": 1}',), headers={"content-type": "application/json"})
    thinking = msgspec.structs.replace(call, body=json.dumps(body | {"reasoning": {"effort": "low"}}).encode())
    answers = refusal(no_top), counted, refusal(NO_HEAT), refusal(no_top), *[Outcome()] * 3, refusal(NO_HEAT)
    async with ScriptedProvider(*answers) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS)) as backend:
            for asked in (count, call, call, thinking):
                await read_stream.collect(backend, asked)
            with pytest.raises(UpstreamRejected):
                await backend.open(msgspec.structs.replace(call, body=b'{"input":"hi"}'))
        told = [set(request.json) & {"temperature", "top_p"} for request in provider.received]
    both = {"temperature", "top_p"}
    assert told == [both, {"temperature"}, both, {"top_p"}, set(), set(), both, set()]


async def test_a_chat_that_a_deployment_answers_as_a_response_alone_is_asked_again_without_them_too() -> None:
    there = refusal("This model is only supported in v1/responses and not in v1/chat/completions.")
    async with ScriptedProvider(there, refusal(NO_HEAT), Outcome(), there, Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS)) as backend:
            for _ in range(2):
                await read_stream.collect(backend, ask())
        told = [(request.path, "temperature" in request.json) for request in provider.received]
    chat, response = "/v1/chat/completions", "/v1/responses"
    assert told == [(chat, True), (response, True), (response, False), (chat, True), (response, False)]


async def test_a_refusal_that_repeats_a_response_says_nothing_about_others() -> None:
    said, next_one = ({"model": "auto", "input": text, "temperature": 0.2} for text in (NO_HEAT, "hi"))
    async with ScriptedProvider(refusal(NO_HEAT), Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS)) as backend:
            for body in (said, next_one):
                await read_stream.collect(backend, Call("responses", "prod", json.dumps(body).encode(), False, "r-1"))
        assert ["temperature" in request.json for request in provider.received] == [True, False, True]
