"""Message batches through Anthropic's client: created, cancelled, expired, rejected, listed, deleted."""

import asyncio
import os
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic.types.messages import MessageBatch

from backends.scripted import Outcome, follow
from gateway.batches.values import MOST_UNDER_WAY
from tests.integration.batch_service import (
    BOUNDS,
    Batches,
    begun,
    download,
    hold,
    opened,
    request,
    until_heard,
)
from tests.rig import KEY

pytestmark = pytest.mark.integration


def message(number: int, **changes: Any) -> Any:
    params = {"model": "a", "max_tokens": 9, "messages": [{"role": "user", "content": f"hello {number}"}]} | changes
    return {"custom_id": f"request-{number}", "params": params}


async def ended(client: anthropic.AsyncAnthropic, batch_id: str) -> MessageBatch:
    async with asyncio.timeout(60):
        while (found := await client.messages.batches.retrieve(batch_id)).processing_status != "ended":
            await asyncio.sleep(0.05)
    return found


async def results(client: anthropic.AsyncAnthropic, batch_id: str) -> dict[str, Any]:
    return {one.custom_id: one.result async for one in await client.messages.batches.results(batch_id)}


async def test_anthropics_client_has_its_batches(batches: Batches) -> None:
    async with batches.anthropic() as client, batches.working():
        batch = await client.messages.batches.create(
            requests=[message(1), message(2, model="nobody"), message(3, max_tokens=None)]
        )
        assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 3)
        assert (batch.ended_at, batch.results_url) == (None, None)
        done = await ended(client, batch.id)
        found = await results(client, batch.id)
        assert done.request_counts.to_dict() == {
            "processing": 0, "succeeded": 1, "errored": 2, "canceled": 0, "expired": 0,
        }  # fmt: skip
        assert found["request-1"].message.content[0].text == "Hello, world."
        assert found["request-2"].error.error.type == "not_found_error"
        assert found["request-3"].error.error.type == "invalid_request_error"
        assert "nobody" in found["request-2"].error.error.message
        assert done.to_dict()["x_breakeven"] == {"cost_usd": "0.000028000000", "answers_without_price": 0}
        assert [one.id async for one in client.messages.batches.list()] == [batch.id]
        deleted = await client.messages.batches.delete(batch.id)
        assert (deleted.id, deleted.type) == (batch.id, "message_batch_deleted")
        with pytest.raises(anthropic.NotFoundError, match="no such batch"):
            await client.messages.batches.retrieve(batch.id)
    async with batches.client() as other:
        assert not [one async for one in other.files.list()], "its files are gone with it"
    assert {one.intent.operation for one in batches.rig.ledger.entries} == {"messages"}


async def test_what_a_cancelled_batch_of_messages_did_not_ask_is_told_too(batches: Batches) -> None:
    held = hold(batches, 2)
    async with batches.anthropic() as client, batches.working():
        batch = await client.messages.batches.create(requests=[message(number) for number in range(1, 11)])
        async with asyncio.timeout(60):
            while held.waiting < BOUNDS.at_once:
                await asyncio.sleep(0.05)
        with pytest.raises(anthropic.ConflictError, match="is under way"):
            await client.messages.batches.delete(batch.id)
        with pytest.raises(anthropic.AnthropicError, match="results_url"):
            await results(client, batch.id)
        assert (await client.messages.batches.cancel(batch.id)).processing_status == "canceling"
        await until_heard(batches)
        held.goes_on.set()
        done = await ended(client, batch.id)
        async with batches.client() as other:
            asked = [one.id async for one in other.files.list(purpose="batch")]
            with pytest.raises(openai.ConflictError, match=f"DELETE /v1/messages/batches/{batch.id}"):
                await other.files.delete(asked[0])
        found = await results(client, batch.id)
    said = done.request_counts
    assert (said.succeeded, said.canceled, said.errored, said.expired) == (6, 4, 0, 0)
    assert done.cancel_initiated_at is not None
    assert sorted(found) == sorted(f"request-{number}" for number in range(1, 11))
    assert [found[f"request-{number}"].type for number in range(7, 11)] == ["canceled"] * 4


async def test_results_that_are_forgotten_while_they_are_downloaded_are_not_taken_for_whole(tmp_path: Path) -> None:
    """Their length is not announced."""
    answer = Outcome(pieces=(os.urandom(1_500_000).hex(),))
    async with opened(tmp_path, follow([answer])) as batches, batches.anthropic() as client, batches.working():
        batch = await client.messages.batches.create(requests=[message(number) for number in range(8)])
        done = await ended(client, batch.id)
        assert done.results_url is not None
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            await download(done.results_url, KEY, lambda: batches.stores.batches.forget(1 << 62, 1 << 62))
        with pytest.raises(anthropic.NotFoundError, match="is no longer stored"):
            await results(client, batch.id)


async def test_messages_that_were_late_are_told_so(batches: Batches) -> None:
    hold(batches, 1)
    async with batches.anthropic() as client, batches.working():
        batch = await client.messages.batches.create(requests=[message(number) for number in range(1, 4)])
        async with asyncio.timeout(60):
            while not batches.rig.ledger.entries:
                await asyncio.sleep(0.05)
        batches.hours_later(24)
        done = await ended(client, batch.id)
        found = await results(client, batch.id)
    assert (done.request_counts.succeeded, done.request_counts.expired, done.request_counts.errored) == (1, 2, 0)
    assert sorted(one.type for one in found.values()) == ["expired", "expired", "succeeded"]


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ([], "1 to 200"),
        ([message(1), message(1)], "requests.1.custom_id: 'request-1' is used twice"),
        ([message(1) | {"custom_id": ""}], "requests.0.custom_id: must have 1 to 64"),
        ([message(1), {"custom_id": "x", "params": {}}], "requests.1.params: .*model"),
        ([message(1, stream=True)], "leave out stream"),
        ([{"custom_id": "x"}], "params"),
    ],
)
async def test_a_batch_of_messages_that_cannot_be_is_refused(batches: Batches, requests: Any, says: str) -> None:
    async with batches.anthropic() as client:
        with pytest.raises(anthropic.BadRequestError, match=says) as caught:
            await client.messages.batches.create(requests=requests)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["type"] == "error"
        assert not [one async for one in client.messages.batches.list()]


async def test_one_batch_of_messages_too_many_leaves_no_file(batches: Batches) -> None:
    async with batches.anthropic() as client, batches.client() as openais:
        for _ in range(MOST_UNDER_WAY):
            await client.messages.batches.create(requests=[message(1)])
        with pytest.raises(anthropic.RateLimitError, match="100 batches in progress"):
            await client.messages.batches.create(requests=[message(1)])
        assert len((await openais.files.list()).data) == MOST_UNDER_WAY


async def test_each_client_lists_its_own_batches(batches: Batches) -> None:
    async with batches.client() as openais, batches.anthropic() as anthropics, batches.anthropic("bk-other") as other:
        first = await begun(openais, request(1))
        made = [await anthropics.messages.batches.create(requests=[message(1)]) for _ in range(4)]
        ids = [one.id for one in reversed(made)]
        assert [one.id async for one in openais.batches.list()] == [first.id]
        assert [one.id async for one in anthropics.messages.batches.list(limit=3)] == ids
        page = await anthropics.messages.batches.list(limit=2, before_id=ids[3])
        assert ([one.id for one in page.data], page.has_more) == (ids[1:3], True)
        with pytest.raises(openai.NotFoundError):
            await openais.batches.retrieve(ids[0])
        for refused in (anthropics.messages.batches.retrieve(first.id), other.messages.batches.retrieve(ids[0])):
            with pytest.raises(anthropic.NotFoundError):
                await refused
