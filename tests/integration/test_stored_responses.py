"""Responses stored by a provider or the gateway, through the official client: retrieved, listed, deleted."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from backends.key_pool import KeyPool, PooledKey
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Backend
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.app import build_fastapi
from gateway.api.stored_responses import build_stored_responses_router
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from tests.integration.service import Service, client_of, responded
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}
RESPONSE: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "completed", "output": [], "model": "m"}
KEPT = Raw((json.dumps(RESPONSE).encode(),), headers=JSON)
UNKNOWN = Raw((b'{"error":{"message":"not found","type":"invalid_request_error"}}',), status=404, headers=JSON)


def keeping(provider: ScriptedProvider) -> OpenAICompatibleBackend:
    return OpenAICompatibleBackend("one", provider.base_url, "provider-key", paths=OPENAI_PATHS)


@asynccontextmanager
async def served(*backends: Backend) -> AsyncGenerator[str]:
    rig = Rig()
    rest = build_fastapi()
    rest.include_router(build_stored_responses_router(rig.pipeline))
    made = {one.name: TranslatingBackend(one, native=OPENAI_PATHS) for one in backends}
    rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)} | made
    try:
        async with serving(rest) as url:
            yield url
    finally:
        for one in backends:
            await one.aclose()


async def test_what_the_provider_keeps_is_asked_of_it() -> None:
    async with ScriptedProvider(KEPT, pages=KEPT) as provider:
        async with served(keeping(provider)) as url, client_of(url) as client:
            found = await client.responses.retrieve("resp_1", include=["reasoning.encrypted_content"])
            await client.responses.cancel("resp_1")
            await client.responses.delete("resp_1")
            await client.responses.input_items.list("resp_1", limit=3)
        assert (found.id, found.status) == ("resp_1", "completed")
        assert [(one.method, one.path.partition("/v1")[2]) for one in provider.received] == [
            ("GET", "/responses/resp_1"),
            ("POST", "/responses/resp_1/cancel"),
            ("DELETE", "/responses/resp_1"),
            ("GET", "/responses/resp_1/input_items"),
        ]
        assert {httpx.Headers(dict(one.headers))["authorization"] for one in provider.received} == {
            "Bearer provider-key"
        }


async def test_every_key_of_the_provider_is_asked_before_it_is_unknown() -> None:
    async with ScriptedProvider(pages=UNKNOWN) as empty, ScriptedProvider(pages=KEPT) as full:
        keys = [PooledKey("a", keeping(empty)), PooledKey("b", keeping(full))]
        async with served(KeyPool("one", keys)) as url, client_of(url) as client:
            assert (await client.responses.retrieve("resp_1")).id == "resp_1"


@pytest.mark.parametrize("is_kept_somewhere", [False, True])
async def test_what_nobody_keeps_is_not_found(is_kept_somewhere: bool) -> None:
    async with ScriptedProvider(pages=UNKNOWN) as provider:
        backends = [keeping(provider)] if is_kept_somewhere else []
        async with served(*backends) as url, client_of(url) as client:
            with pytest.raises(openai.NotFoundError, match="has no such response"):
                await client.responses.retrieve("resp_1")


async def test_a_provider_that_refuses_our_key_is_our_affair() -> None:
    refused = Raw((b'{"error":{"message":"bad key provider-key"}}',), status=401, headers=JSON)
    async with ScriptedProvider(pages=refused) as provider, served(keeping(provider)) as url:
        client = client_of(url)
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.retrieve("resp_1")
        await client.close()
    assert caught.value.status_code == 502
    assert "provider-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("resp_1", "bk-wrong", 401), ("resp_1", "bk-viewer", 403), ("resp_1?stream=7", KEY, 400), ("a%2Fb", KEY, 404)],
)
async def test_who_may_not_ask_is_told_before_the_provider_hears_of_it(path: str, key: str, status: int) -> None:
    async with ScriptedProvider(pages=KEPT) as provider:
        asking = httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60)
        async with served(keeping(provider)) as url, asking as client:
            assert (await client.get(f"{url}/v1/responses/{path}")).status_code == status
        assert not provider.received


async def test_a_response_that_its_provider_keeps_has_no_events() -> None:
    async with ScriptedProvider(pages=KEPT) as provider, served(keeping(provider)) as url, client_of(url) as client:
        with pytest.raises(openai.BadRequestError, match="no events"):
            await client.responses.retrieve("resp_1", stream=True)
        assert (await client.responses.retrieve("resp_1", stream=False)).id == "resp_1"
        assert {one.path.partition("/v1")[2] for one in provider.received} == {"/responses/resp_1"}


async def test_another_teams_response_is_not_there() -> None:
    """It cannot be read, continued or deleted: its id is valid only for its own team."""
    made = Raw((json.dumps(RESPONSE).encode(),), headers=JSON)
    async with ScriptedProvider(made, made, pages=KEPT) as provider:
        rig = Rig()
        rig.add_key("bk-mate", KeyRecord("key-3", "mate", "app", team="red"))
        rig.add_key("bk-other", KeyRecord("key-4", "other", "app", team="blue"))
        backend = keeping(provider)
        rig.pipeline.backends = {"one": TranslatingBackend(backend, native=OPENAI_PATHS), "two": rig.two}
        service = Service(rig)
        service.rest.include_router(build_stored_responses_router(rig.pipeline))
        async with serving(service.app) as url, client_of(url) as own, client_of(url, "bk-other") as other:
            first = await own.responses.create(model="a", input="hello")
            assert first.id.startswith("resp_bk_")
            second = await own.responses.create(model="a", input="more", previous_response_id=first.id)
            assert json.loads(provider.received[1].body)["previous_response_id"] == "resp_1"
            assert second.id == first.id, "the scripted provider calls both by one name"
            async with client_of(url, "bk-mate") as mate:
                assert (await mate.responses.retrieve(first.id)).id == first.id
            asked = len(provider.received)
            for refused in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
                with pytest.raises(openai.NotFoundError, match="This key's team has no such response"):
                    await refused(first.id)
            with pytest.raises(openai.BadRequestError, match="not found") as caught:
                await other.responses.create(model="a", input="more", previous_response_id=first.id)
            assert caught.value.code == "previous_response_not_found"
            assert len(provider.received) == asked, "nothing of it reached the provider"
        await backend.aclose()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_a_model_without_a_responses_api_answered_is_kept_here(is_stream: bool) -> None:
    """Continued, retrieved, listed and deleted, as if a provider stored it, only by its team."""
    rig = Rig()
    rig.add_key("bk-other", KeyRecord("key-4", "other", "app", team="blue"))
    rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)}
    rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
    service = Service(rig)
    service.rest.include_router(build_stored_responses_router(rig.pipeline))
    async with serving(service.app) as url, client_of(url) as own, client_of(url, "bk-other") as other:
        first = await responded(own, is_stream=is_stream, input="hello")
        [listed] = (await own.responses.input_items.list(first.id)).data
        assert listed.to_dict()["content"] == [{"type": "input_text", "text": "hello"}]
        second = await responded(own, is_stream=is_stream, input="more", previous_response_id=first.id)
        assert (second.previous_response_id, second.to_dict()["store"]) == (first.id, True)
        asked = json.loads(rig.one.calls[-1].body)["messages"]
        assert [one["role"] for one in asked] == ["user", "assistant", "user"]

        assert (await own.responses.retrieve(second.id)).output_text == second.output_text == "Hello, world."
        items = [one async for one in own.responses.input_items.list(second.id, order="asc", limit=2)]
        assert [one.role for one in items if one.type == "message"] == ["user", "assistant", "user"]
        newest = await own.responses.input_items.list(second.id, limit=1)
        assert (newest.data[0].id, newest.has_more) == (items[-1].id, True)
        for wrong in ({"limit": 0}, {"limit": 101}, {"limit": "9" * 5_000}, {"after": "item_9"}, {"order": "up"}):
            with pytest.raises(openai.BadRequestError):
                await own.responses.input_items.list(second.id, extra_query=wrong)

        for refused in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with pytest.raises(openai.NotFoundError, match="This key's team has no such response"):
                await refused(second.id)
        with pytest.raises(openai.BadRequestError, match="background"):
            await own.responses.cancel(second.id)
        await own.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await own.responses.retrieve(second.id)
        with pytest.raises(openai.BadRequestError, match="is not kept here") as caught:
            await responded(own, is_stream=is_stream, input="more", previous_response_id=second.id)
        assert caught.value.code == "previous_response_not_found", "clients that know it send the conversation in full"
