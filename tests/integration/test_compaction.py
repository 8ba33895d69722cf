"""Compacting conversations through the official client: `/v1/responses/compact`, and what follows."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from backends.endpoints.responses_compaction import ASK, LEAD
from backends.formats.past_thinking import unsealed
from backends.scripted import Outcome, follow
from backends.translating import TranslatingBackend
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.ledger.entry import Status
from tests.integration.service import Service, client_of
from tests.live_server import serving
from tests.rig import Rig

pytestmark = pytest.mark.integration
ITEMS: Any = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Sail."},
    {"role": "assistant", "content": "Where?"},
    {"role": "user", "content": "Norway."},
]
SUMMARY = Outcome(pieces=("To ", "Norway."))


@asynccontextmanager
async def compacting(*outcomes: Outcome) -> AsyncGenerator[tuple[Rig, openai.AsyncOpenAI]]:
    rig = Rig(one=follow(outcomes or [Outcome()]))
    rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)}
    rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
    async with serving(Service(rig).app) as url, client_of(url) as client:
        yield rig, client


def sent(rig: Rig) -> dict[str, Any]:
    return json.loads(rig.one.calls[-1].body)


async def test_a_conversation_is_compacted_booked_and_continued() -> None:
    async with compacting(SUMMARY, Outcome()) as (rig, client):
        compacted = await client.responses.compact(model="a", input=ITEMS, instructions="Help.")
        assert sent(rig)["messages"][-1]["content"] == ASK
        assert sent(rig)["messages"][0] == {"role": "system", "content": "Help."}
        assert (compacted.object, compacted.usage.total_tokens) == ("response.compaction", 16)
        entry = rig.entry
        assert compacted.id == f"resp_{entry.intent.request_id}"
        assert (entry.status, entry.output_tokens) == (Status.completed, 4)
        output: Any = [item.to_dict(warnings=False) for item in compacted.output]
        *kept, last = output
        assert [(one["role"], one["content"][0]["text"]) for one in kept] == [
            ("developer", "Be brief."), ("user", "Sail."), ("user", "Norway."),
        ]  # fmt: skip
        assert all(str(one["id"]).startswith("msg_") and one["status"] == "completed" for one in kept)
        assert (last["type"], unsealed(last["encrypted_content"])) == ("compaction", "To Norway.")
        more: Any = [*kept, last, {"role": "user", "content": "When?"}]
        await client.responses.create(model="a", input=more)
        assert [item["content"] for item in sent(rig)["messages"]][3:] == [LEAD + "To Norway.", "When?"]
        estimate = (await client.responses.input_tokens.count(model="b", input=more)).input_tokens
        assert (
            estimate > (await client.responses.input_tokens.count(model="b", input=[*kept, more[-1]])).input_tokens + 20
        )


async def test_a_kept_conversation_is_compacted_and_again_later() -> None:
    async with compacting(Outcome(), SUMMARY, Outcome(), SUMMARY) as (rig, client):
        first = await client.responses.create(model="a", input="Sail.", instructions="Help.")
        compacted = await client.responses.compact(model="a", previous_response_id=first.id)
        assert [one["content"] for one in sent(rig)["messages"]] == ["Sail.", "Hello, world.", ASK]
        given: Any = [item.to_dict(warnings=False) for item in compacted.output]
        assert [item["type"] for item in given] == ["message", "compaction"]
        second = await client.responses.create(model="a", input=[*given, {"role": "user", "content": "When?"}])
        again = await client.responses.compact(model="a", previous_response_id=second.id)
        assert [one["content"] for one in sent(rig)["messages"]][1:4] == [LEAD + "To Norway.", "When?", "Hello, world."]
        kept = [item.to_dict(warnings=False) for item in again.output]
        assert [item["type"] for item in kept] == ["message", "message", "compaction"], (
            "the new summary has the old one's"
        )
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(again.id)


async def test_a_trigger_compacts_in_a_stream_and_its_response_can_be_continued() -> None:
    async with compacting(SUMMARY, Outcome()) as (rig, client):
        asked: Any = [*ITEMS, {"type": "compaction_trigger"}]
        events = [event async for event in await client.responses.create(model="a", input=asked, stream=True)]
        end = events[-1]
        assert end.type == "response.completed"
        assert [item.type for item in end.response.output] == ["compaction"]
        await client.responses.create(model="a", input="When?", previous_response_id=end.response.id)
        assert [item["content"] for item in sent(rig)["messages"]] == [
            "Be brief.", "Sail.", "Norway.", LEAD + "To Norway.", "When?",
        ]  # fmt: skip
        await client.responses.create(model="a", input=[*asked, ITEMS[1]])
        assert ASK not in [item["content"] for item in sent(rig)["messages"]], "an earlier turn asked for it, in vain"


@pytest.mark.parametrize("outcome", [Outcome(pieces=()), Outcome(finish_reason="length")])
async def test_half_a_summary_is_none_but_booked(outcome: Outcome) -> None:
    async with compacting(outcome) as (rig, client):
        with pytest.raises(openai.InternalServerError, match="did not write a whole summary"):
            await client.with_options(max_retries=2).responses.compact(model="a", input=ITEMS)
        assert rig.entry.status is Status.completed
        assert len(rig.one.calls) == 1, "each try is paid for, so clients do not repeat it by themselves"


async def test_what_cannot_be_compacted_is_refused_before_anything_is_asked() -> None:
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"model": "a"}, "input: needs at least one item"),
        ({"model": "a", "input": []}, "input: needs at least one item"),
        ({"model": "a", "input": 7}, "must be a text or a list"),
        ({"model": "a", "input": [7]}, r"input\[0\]: must be an object"),
        ({"input": ITEMS}, "model"),
        ({"model": "a", "input": [{"type": "compaction", "encrypted_content": "gAAAAABq"}]}, "can read it"),
        ({"model": "a", "previous_response_id": "resp_x"}, "not kept here"),
        ({"model": "a", "input": ITEMS, "conversation": "conv_x"}, "conversation"),
    ]
    async with compacting() as (rig, client):
        for body, why in bodies:
            with pytest.raises(openai.BadRequestError, match=why):
                await client.post("/responses/compact", body=body, cast_to=object)
        with pytest.raises(openai.BadRequestError, match="not valid"):
            await client.post("/responses/compact", content=b"[", cast_to=object)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="bk-none").responses.compact(model="a", input=ITEMS)
        assert not rig.one.calls
