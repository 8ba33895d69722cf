"""Counting a response's input tokens through the official client: by the provider, or estimated."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.stored_responses import build_stored_responses_router
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from tests.integration.service import Service, client_of
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}
COUNTED = b'{"object": "response.input_tokens", "input_tokens": 2095}'
RESPONSE: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "completed", "output": [], "model": "m"}
TOOL = {"type": "function", "name": "weather", "description": "x" * 400, "parameters": {"type": "object"}}
TEXT = "What is the capital of France? " * 10


def said(body: bytes, status: int = 200) -> Raw:
    return Raw((body,), status=status, headers=JSON)


def refused(message: str, status: int) -> Raw:
    return said(json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode(), status)


class Counting:
    """A client of a gateway whose model `a` has a provider with the Responses API, and `b` one without."""

    def __init__(self, rig: Rig, provider: ScriptedProvider, client: openai.AsyncOpenAI, url: str) -> None:
        self.rig, self.provider, self.client, self.url = rig, provider, client, url

    async def count(self, **asked: Any) -> tuple[int, str]:
        answer = await self.client.responses.input_tokens.with_raw_response.count(**asked)
        counted = answer.parse()
        assert counted.object == "response.input_tokens"
        return counted.input_tokens, answer.headers["x-breakeven-count"]


@asynccontextmanager
async def counting(*answers: Raw) -> AsyncGenerator[Counting]:
    async with ScriptedProvider(*answers) as provider:
        rig = Rig()
        backend = OpenAICompatibleBackend("one", provider.base_url, "provider-key", paths=OPENAI_PATHS)
        rig.pipeline.backends = {
            "one": TranslatingBackend(backend, native=OPENAI_PATHS),
            "two": TranslatingBackend(rig.two),
        }
        rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
        service = Service(rig)
        service.rest.include_router(build_stored_responses_router(rig.pipeline))
        try:
            async with serving(service.app) as url, client_of(url) as client:
                yield Counting(rig, provider, client, url)
        finally:
            await backend.aclose()


async def test_the_provider_counts_where_it_can_and_nothing_is_booked() -> None:
    async with counting(*[said(COUNTED)] * 2) as asking:
        text = {"format": {"type": "json_object"}}
        given: dict[str, Any] = {"input": "hello", "instructions": "Be brief.", "tools": [TOOL], "text": text}
        assert await asking.count(model="a", **given) == (2095, "a")
        assert await asking.count(**given) == (2095, "a"), "of no model: of the one that rules choose"
        for received in asking.provider.received:
            assert received.path == "/v1/responses/input_tokens"
            assert json.loads(received.body) == {**given, "model": "upstream-a"}
        assert not asking.rig.ledger.entries


async def test_elsewhere_it_is_estimated_by_all_that_is_sent() -> None:
    broken = (refused("no such address", 404), refused("no", 405), said(b"", 500), said(b"{}"))
    async with counting(*broken) as asking:
        for _ in broken:
            assert await asking.count(model="a", input=TEXT) == (82, "estimate")
        assert len(asking.provider.received) == len(broken)
        bare = (await asking.count(model="b", input=TEXT))[0]
        assert bare == 82
        assert (await asking.count(model="b", input=TEXT, instructions=TEXT))[0] > 1.9 * bare
        assert (await asking.count(model="b", input=TEXT, tools=[TOOL]))[0] > bare + 100
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
        pictured: Any = [{"role": "user", "content": [picture, {"type": "input_text", "text": TEXT}]}]
        with pytest.raises(openai.BadRequestError, match="vision"):
            await asking.client.responses.create(model="b", input=pictured)
        assert (await asking.count(model="b", input=pictured))[0] > bare + 500, "of what no model would take too"
        assert not asking.rig.two.calls
        assert len(asking.rig.ledger.entries) == 0


async def test_what_is_kept_here_is_counted_too_also_at_the_provider() -> None:
    async with counting(said(COUNTED)) as asking:
        asking.rig.add_key("bk-other", KeyRecord("key-9", "other", "app", team="blue"))
        first = await asking.client.responses.create(model="b", input=TEXT)
        alone, _ = await asking.count(model="b", input="more")
        for asked in ({"input": "more"}, {"input": None}, {}):
            given: Any = {"model": "b", "previous_response_id": first.id, **asked}
            whole, how = await asking.count(**given)
            assert (whole > alone + 70, how) == (True, "estimate")
        assert await asking.count(model="a", input="more", previous_response_id=first.id) == (2095, "a")
        sent = json.loads(asking.provider.received[0].body)
        assert [one["role"] for one in sent["input"]] == ["user", "assistant", "user"]
        assert "previous_response_id" not in sent
        with pytest.raises(openai.BadRequestError, match="is not kept here"):
            await asking.client.with_options(api_key="bk-other").responses.input_tokens.count(
                model="b", previous_response_id=first.id
            )


async def test_what_a_provider_keeps_it_alone_can_count() -> None:
    made = said(json.dumps(RESPONSE).encode())
    async with counting(made, said(COUNTED), said(COUNTED), said(b"", 500), refused("none", 404)) as asking:
        first = await asking.client.responses.create(model="a", input="hello")
        assert first.id.startswith("resp_bk_")
        leaning: Any = {"input": "more", "previous_response_id": first.id}
        assert await asking.count(model="a", **leaning) == (2095, "a")
        assert json.loads(asking.provider.received[1].body)["previous_response_id"] == "resp_1"
        assert (await asking.count(model="a", conversation="conv_1", input="more"))[1] == "a"
        with pytest.raises(openai.InternalServerError, match="cannot be counted"):
            await asking.count(model="a", **leaning)
        with pytest.raises(openai.BadRequestError, match="only its provider stores"):
            await asking.count(model="a", **leaning)
        for refusal in (leaning, {"input": "more", "conversation": "conv_1"}, {"input": [{"id": "msg_1"}]}):
            with pytest.raises(openai.BadRequestError, match=r"kept here|offers the Responses API"):
                await asking.count(model="b", **refusal)


async def test_auto_is_counted_by_whom_the_request_would_reach() -> None:
    """The cheapest model's format cannot express it, so the next one counts, as it would answer."""
    async with counting(said(COUNTED)) as asking:
        asking.rig.pipeline.backends = dict(zip(("two", "one"), asking.rig.pipeline.backends.values(), strict=True))
        assert await asking.count(model="auto", input="more", conversation="conv_1") == (2095, "b")


@pytest.mark.parametrize(
    ("asked", "key", "status", "says"),
    [
        (b'{"model": "a", "input": 1}', KEY, 400, "input"),
        (b"{", KEY, 400, "JSON"),
        (b'{"model": "gpt-none", "input": "x"}', KEY, 404, "gpt-none"),
        (b'{"model": "b"}', KEY, 400, "needs at least one item"),
        (b'{"model": "a", "input": "x"}', "bk-wrong", 401, "not known here"),
        (b'{"model": "a", "input": "x"}', "bk-viewer", 403, "may read but not call"),
        (b"x" * 1_000_001, KEY, 413, "larger"),
    ],
)
async def test_what_is_wrong_is_told_as_of_the_answer_itself(asked: bytes, key: str, status: int, says: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    async with counting() as asking, httpx.AsyncClient(headers=headers, timeout=60) as client:
        answer = await client.post(f"{asking.url}/v1/responses/input_tokens", content=asked)
        assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text
        assert not asking.provider.received


async def test_a_providers_refusal_is_passed_on_and_a_get_is_told_to_post() -> None:
    async with counting(refused("Unknown parameter: 'x'.", 400)) as asking:
        with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'x'"):
            await asking.count(model="a", input="hello", extra_body={"x": 1})
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
            got = await client.get(f"{asking.url}/v1/responses/input_tokens")
            assert (got.status_code, got.headers["allow"]) == (405, "POST")
            assert (await client.get(f"{asking.url}/v1/responses/compact")).status_code == 405
