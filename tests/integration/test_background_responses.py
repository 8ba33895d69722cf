"""Responses written in the background, through the official client: fetched, continued, cancelled, deleted."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import openai
import pytest

from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.ledger.entry import Status
from tests.integration.service import client_of
from tests.integration.slow_service import Slow
from tests.live_server import serving
from tests.rig import KEY
from tests.scripted_provider import Raw, ScriptedProvider
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
async def slow() -> AsyncGenerator[Slow]:
    made = Slow()
    async with serving(made.app) as url:
        made.url = url
        yield made
        made.may_answer.set()


async def test_it_is_written_without_its_caller_fetched_and_continued(slow: Slow) -> None:
    begun = await slow.begin(instructions="be brief")
    assert (begun.status, begun.background, begun.output, begun.model) == ("in_progress", True, [], "a")
    assert begun.instructions == "be brief"
    async with slow.client() as client:
        assert (await client.responses.retrieve(begun.id)).status == "in_progress"
        assert not slow.rig.ledger.entries, "it is booked once it is written"
        with pytest.raises(openai.BadRequestError, match="still being written"):
            await client.responses.create(model="a", input="more", previous_response_id=begun.id)
        [listed] = (await client.responses.input_items.list(begun.id)).data
        assert listed.to_dict()["content"] == [{"type": "input_text", "text": "hello"}]
        slow.may_answer.set()
        done = await slow.finished(begun.id)
        assert (done.id, done.status, done.background) == (begun.id, "completed", True)
        assert done.output_text == "Hello, world."
        assert done.usage is not None
        assert done.usage.total_tokens == 16
        entry = await slow.entry()
        assert (f"resp_{entry.intent.request_id}", entry.status) == (begun.id, Status.completed)
        assert "background" not in json.loads(slow.rig.one.calls[0].body)
        again = await client.responses.cancel(begun.id)
        assert again.status == "completed", "too late, and no mistake"
        await client.responses.create(model="a", input="more", previous_response_id=begun.id)
        asked = json.loads(slow.rig.one.calls[-1].body)["messages"]
        assert [one["role"] for one in asked] == ["user", "assistant", "user"]


async def test_it_is_cancelled_and_what_it_cost_is_booked(slow: Slow) -> None:
    begun = await slow.begin()
    async with slow.client() as client:
        assert (await client.responses.cancel(begun.id)).status == "cancelled"
        assert (await client.responses.retrieve(begun.id)).status == "cancelled", "before its worker noticed"
        assert (await slow.entry()).status is Status.cancelled
        slow.may_answer.set()
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"
        assert (await client.responses.cancel(begun.id)).status == "cancelled"


async def test_what_was_deleted_meanwhile_is_not_kept(slow: Slow) -> None:
    begun = await slow.begin()
    async with slow.client() as client:
        await client.responses.delete(begun.id)
        slow.may_answer.set()
        await slow.entry()
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(begun.id)


async def test_only_its_team_knows_it(slow: Slow) -> None:
    begun = await slow.begin()
    async with client_of(slow.url, "bk-other") as other:
        for refused in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
            with pytest.raises(openai.NotFoundError):
                await refused(begun.id)


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"model": "none"}, openai.NotFoundError, "none"),
        ({"input": "x" * 9_000_000}, openai.APIStatusError, "larger than"),
        ({"input": 7}, openai.BadRequestError, "input"),
        ({"background": "yes"}, openai.BadRequestError, "background: must be true or false"),
    ],
)
async def test_what_is_refused_is_refused_at_once(slow: Slow, asked: dict[str, Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        await slow.begin(**asked)
    assert not slow.rig.ledger.entries


async def test_where_nothing_is_kept_it_is_refused() -> None:
    made = Slow()
    kept = made.rig.pipeline.kept_responses
    assert kept is not None
    kept.seconds = 0.0
    async with serving(made.app) as made.url:
        with pytest.raises(openai.BadRequestError, match=r"background: .*kept_answers\.response_hours"):
            await made.begin()


async def test_a_failure_is_told_when_it_is_fetched() -> None:
    made = Slow(Outcome(fault="reset", first_piece_delay_seconds=1.0))
    made.rig.two = ScriptedBackend("two", follow([Outcome(fault="unavailable")]))
    made.rig.pipeline.backends = {"one": TranslatingBackend(made.rig.one), "two": TranslatingBackend(made.rig.two)}
    async with serving(made.app) as made.url:
        begun = await made.begin()
        made.may_answer.set()
        failed = await made.finished(begun.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.code, bool(failed.error.message)) == ("server_error", True)
    assert (await made.entry()).status is Status.failed


async def test_a_stream_goes_on_without_its_caller(slow: Slow) -> None:
    body = {"model": "a", "input": "hello", "background": True, "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=60) as client:
        asking = asyncio.create_task(client.post(f"{slow.url}/v1/responses", json=body, headers=headers))
        await until(lambda: slow.rig.one.calls)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0.05)  # the gateway has noticed
    slow.may_answer.set()
    entry = await slow.entry()
    assert entry.status is Status.completed
    assert (await slow.finished(f"resp_{entry.intent.request_id}")).output_text == "Hello, world."


async def test_a_providers_own_response_has_the_id_that_its_caller_was_told() -> None:
    theirs = {
        "id": "resp_theirs", "object": "response", "created_at": 1, "status": "completed", "model": "m",
        "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]}],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }  # fmt: skip
    answer = Raw((json.dumps(theirs).encode(),), headers={"content-type": "application/json"})
    made = Slow()
    async with ScriptedProvider(answer) as provider:
        backend = OpenAICompatibleBackend("one", provider.base_url, "provider-key", paths=OPENAI_PATHS)
        made.rig.pipeline.backends = {"one": TranslatingBackend(backend, native=OPENAI_PATHS), "two": made.rig.two}
        async with serving(made.app) as made.url:
            begun = await made.begin()
            done = await made.finished(begun.id)
        await backend.aclose()
    assert (done.id, done.status, done.background, done.output_text) == (begun.id, "completed", True, "Hi.")
    assert "background" not in json.loads(provider.received[0].body)


async def test_equal_requests_with_one_idempotency_key_are_one_response(slow: Slow) -> None:
    headers = {"idempotency-key": "once"}
    first = await slow.begin(extra_headers=headers)
    slow.may_answer.set()
    await slow.finished(first.id)
    assert (await slow.begin(extra_headers=headers)).id == first.id
    assert len(slow.rig.one.calls) == 1
