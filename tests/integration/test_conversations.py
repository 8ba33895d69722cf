"""Conversations stored by the gateway, through the official client: created, continued, listed, changed and deleted."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import EasyInputMessageParam

from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.conversations import build_conversations_router
from gateway.api.stored_responses import build_stored_responses_router
from gateway.kept_answers.kept_conversations import KeptConversations
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from tests.integration.service import Service, client_of, responded
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.gateway.kept_answers.nested_json import nested

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}
OTHER, MATE = "bk-other", "bk-mate"


class Talk:
    """Model `a` has no Responses API; `b` may belong to a provider that has it."""

    def __init__(self, outcomes: Sequence[Outcome], **settings: Any) -> None:
        self.rig = Rig()
        self.rig.add_key(OTHER, KeyRecord("key-4", "other", "app", team="blue"))
        self.rig.add_key(MATE, KeyRecord("key-3", "mate", "app", team="red"))
        self.model = ScriptedBackend("one", follow(outcomes), keeps_calls=True)
        secret = self.rig.pipeline.keys.conversation_secret
        self.rig.pipeline.backends = {"one": TranslatingBackend(self.model), "two": TranslatingBackend(self.rig.two)}
        self.rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), secret)
        self.kept = KeptConversations(MemoryTurns(), MemoryTurns(), secret, **settings)
        self.rig.pipeline.kept_conversations = self.kept
        self.service = Service(self.rig)
        self.service.rest.include_router(build_stored_responses_router(self.rig.pipeline))
        self.service.rest.include_router(build_conversations_router(self.rig.pipeline, self.kept))
        self.url = ""

    @property
    def said(self) -> list[str]:
        """The texts of the messages last sent to the model."""
        messages = json.loads(self.model.calls[-1].body)["messages"]
        return [one["content"] if isinstance(one["content"], str) else one["content"][0]["text"] for one in messages]


@asynccontextmanager
async def talking(*outcomes: Outcome, **settings: Any) -> AsyncGenerator[tuple[Talk, openai.AsyncOpenAI]]:
    talk = Talk(outcomes or (Outcome(),), **settings)
    async with serving(talk.service.app) as url, client_of(url) as client:
        talk.url = url
        yield talk, client


def says(text: str) -> Outcome:
    return Outcome(pieces=(text,))


async def refusal_of(client: openai.AsyncOpenAI, **asked: Any) -> str | None:
    """The error code; None if the request succeeded."""
    try:
        await client.responses.create(model="a", **asked)
    except openai.APIStatusError as error:
        return error.code
    return None


async def listed(client: openai.AsyncOpenAI, conversation_id: str, **asked: Any) -> list[dict[str, Any]]:
    return [one.to_dict() async for one in client.conversations.items.list(conversation_id, **asked)]


def text_of(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item["content"])


@pytest.mark.parametrize("is_stream", [False, True])
async def test_each_turn_goes_on_from_all_before_and_is_appended(is_stream: bool) -> None:
    async with talking(says("one"), says("two")) as (talk, client):
        made = await client.conversations.create(metadata={"topic": "test"})
        assert (made.object, made.metadata, made.id.startswith("conv_bk_")) == ("conversation", {"topic": "test"}, True)
        first = await responded(client, is_stream=is_stream, input="first", conversation=made.id, instructions="Brief.")
        assert first.conversation is not None
        assert first.conversation.id == made.id
        second = await responded(client, is_stream=is_stream, input="second", conversation={"id": made.id})
        assert second.previous_response_id is None
        assert talk.said == ["first", "one", "second"], "no old instructions"
        items = await listed(client, made.id, order="asc", limit=3)
        assert [(one["role"], text_of(one), one["status"]) for one in items] == [
            ("user", "first", "completed"),
            ("assistant", "one", "completed"),
            ("user", "second", "completed"),
            ("assistant", "two", "completed"),
        ]
        assert items[3]["id"] == second.output[0].id, "the response's own name of it"
        assert [one["content"][0]["type"] for one in items] == ["input_text", "output_text"] * 2
        kept = await client.responses.retrieve(second.id)
        assert kept.conversation is not None
        assert (kept.output_text, kept.conversation.id) == ("two", made.id)
        with pytest.raises(openai.BadRequestError, match="belongs to a conversation"):
            await client.responses.create(model="a", input="third", previous_response_id=second.id)
        counted = await client.responses.input_tokens.count(model="a", conversation=made.id, input="more")
        assert counted.input_tokens > (await client.responses.input_tokens.count(model="a", input="more")).input_tokens


async def test_what_is_streamed_names_the_conversation_from_its_beginning() -> None:
    async with talking() as (_, client):
        made = await client.conversations.create()
        stream = await client.responses.create(model="a", input="hi", conversation=made.id, stream=True)
        told = [event.to_dict().get("response") async for event in stream]
        heads: Any = [one for one in told if one is not None]
        assert [one["conversation"] for one in heads] == [{"id": made.id}] * len(heads)
        assert len(heads) == 3


async def test_a_provider_of_responses_is_told_all_of_it_and_its_answer_is_appended() -> None:
    output = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": "two", "annotations": []}]}]  # fmt: skip
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": output, "model": "m"}
    event = {"type": "response.completed", "sequence_number": 1, "response": response}
    whole = Raw((json.dumps(response).encode(),), headers=JSON)
    streamed = Raw((b"data: " + json.dumps(event).encode() + b"\n\n",), headers={"content-type": "text/event-stream"})
    async with talking(says("one")) as (talk, client), ScriptedProvider(whole, streamed) as provider:
        backend = OpenAICompatibleBackend("two", provider.base_url, "provider-key", paths=OPENAI_PATHS)
        talk.rig.pipeline.backends = {
            **talk.rig.pipeline.backends,
            "two": TranslatingBackend(backend, native=OPENAI_PATHS),
        }
        made = await client.conversations.create(items=[{"role": "user", "content": "zeroth"}])
        await client.responses.create(model="a", input="first", conversation=made.id)
        second = await client.responses.create(model="b", input="second", conversation=made.id)
        assert second.conversation is not None
        assert second.conversation.id == made.id
        sent = json.loads(provider.received[0].body)
        assert "conversation" not in sent
        assert [one["role"] for one in sent["input"]] == ["user", "user", "assistant", "user"]
        stream = await client.responses.create(model="b", input="third", conversation=made.id, stream=True)
        assert [event.type async for event in stream] == ["response.completed"]
        items = await listed(client, made.id, order="asc")
        assert [text_of(one) for one in items] == ["zeroth", "first", "one", "second", "two", "third", "two"]
        assert len({one["id"] for one in items}) == len(items), "the provider called two items by one name"
        await backend.aclose()


async def test_a_conversation_that_a_provider_made_is_its_own_affair() -> None:
    made = Raw((json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": []}).encode(),))
    async with talking() as (talk, client), ScriptedProvider(made) as provider:
        backend = OpenAICompatibleBackend("two", provider.base_url, "provider-key", paths=OPENAI_PATHS)
        talk.rig.pipeline.backends = {
            **talk.rig.pipeline.backends,
            "two": TranslatingBackend(backend, native=OPENAI_PATHS),
        }
        await client.responses.create(model="b", input="hi", conversation="conv_123")
        sent = json.loads(provider.received[0].body)
        assert (sent["conversation"], sent["input"]) == ("conv_123", "hi")
        with pytest.raises(openai.BadRequestError, match="use a model of the provider that created it"):
            await client.responses.create(model="a", input="hi", conversation="conv_123")
        with pytest.raises(openai.NotFoundError, match="Ask a provider for its own conversations"):
            await client.conversations.retrieve("conv_123")
        await backend.aclose()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_turn_that_failed_appends_nothing_and_leaves_the_conversation_free(is_stream: bool) -> None:
    broken = Outcome(fault="reset", fault_after_pieces=1) if is_stream else Outcome(fault="rejected")
    async with talking(broken, says("two")) as (talk, client):
        made = await client.conversations.create()
        with pytest.raises(openai.APIError):
            await responded(client, is_stream=is_stream, input="first", conversation=made.id)
        unasked: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            await responded(client, is_stream=is_stream, input=unasked, conversation=made.id)
        assert await listed(client, made.id) == []
        await responded(client, is_stream=is_stream, input="again", conversation=made.id)
        assert talk.said == ["again"]


async def test_who_leaves_in_the_middle_appends_nothing_and_leaves_the_conversation_free() -> None:
    slow = Outcome(pieces=("one", "two"), piece_delay_seconds=0.5)
    async with talking(slow, says("two")) as (talk, client):
        made = await client.conversations.create()
        async with client.responses.stream(model="a", input="first", conversation=made.id) as stream:
            async for _ in stream:
                break
        async with asyncio.timeout(60):
            while await refusal_of(client, input="second", conversation=made.id) == "conversation_locked":
                await asyncio.sleep(0.05)
        assert talk.said == ["second"]


async def test_two_turns_at_once_are_not() -> None:
    async with talking(says("one"), says("two")) as (_, client):
        made = await client.conversations.create()
        asked = [client.responses.create(model="a", input=text, conversation=made.id) for text in ("x", "y")]
        async with client.responses.stream(model="a", input="first", conversation=made.id) as stream:
            refused = await asyncio.gather(*asked, return_exceptions=True)
            assert (await stream.get_final_response()).status == "completed"
        assert [getattr(one, "code", "") for one in refused].count("conversation_locked") >= 1
        items = await listed(client, made.id, order="asc")
        assert [one["role"] for one in items] == ["user", "assistant"] * (len(items) // 2)


async def test_it_is_described_listed_and_deleted_with_its_items() -> None:
    async with talking() as (_, client):
        given: Any = [
            {"role": "user", "content": "hi"},
            {"type": "message", "role": "assistant", "content": "hello"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"},
            {"type": "function_call_output", "call_id": "c", "output": "sunny"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
        ]
        made = await client.conversations.create(items=given)
        assert (await client.conversations.retrieve(made.id)).to_dict() == made.to_dict()
        assert made.metadata == {}
        changed = await client.conversations.update(made.id, metadata={"a": "b"})
        assert changed.to_dict() == {**made.to_dict(), "metadata": {"a": "b"}}
        assert (await client.conversations.update(made.id, metadata=None)).metadata == {}

        items = await listed(client, made.id, order="asc")
        assert [one["type"] for one in items] == [one.get("type", "message") for one in given]
        assert [one["id"].partition("_")[0] for one in items] == ["msg", "msg", "fc", "fco", "rs"]
        assert (items[2]["id"], items[4]["id"]) == ("fc_1", "rs_1")
        assert items[1]["content"] == [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]
        added = await client.conversations.items.create(made.id, items=[{"role": "user", "content": "more"}])
        assert (added.object, added.has_more, added.first_id) == ("list", False, added.data[0].id)
        one = await client.conversations.items.retrieve(added.first_id, conversation_id=made.id)
        assert one.to_dict() == added.data[0].to_dict()
        newest = await client.conversations.items.list(made.id, limit=1)
        assert [one.id for one in newest.data] == [added.first_id]

        left = await client.conversations.items.delete(items[0]["id"], conversation_id=made.id)
        assert left.id == made.id
        assert [one["id"] for one in await listed(client, made.id, order="asc")] == [
            *(one["id"] for one in items[1:]),
            added.first_id,
        ]
        with pytest.raises(openai.NotFoundError, match="not found in this conversation"):
            await client.conversations.items.retrieve(items[0]["id"], conversation_id=made.id)
        gone = await client.conversations.delete(made.id)
        assert gone.to_dict() == {"id": made.id, "object": "conversation.deleted", "deleted": True}
        for asked in (
            client.conversations.retrieve(made.id),
            client.conversations.delete(made.id),
            client.conversations.items.create(made.id, items=[]),
            client.conversations.items.delete("msg_1", conversation_id=made.id),
            client.responses.create(model="a", input="hi", conversation=made.id),
            client.responses.input_tokens.count(model="a", input="hi", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError, match="is not kept here for this key"):
                await asked


async def test_another_team_sees_nothing_of_it() -> None:
    async with talking(*[Outcome()] * 3) as (talk, client), client_of(talk.url, OTHER) as other:
        made = await client.conversations.create(items=[{"role": "user", "content": "hi"}])
        [item] = await listed(client, made.id)
        for asked in (
            other.conversations.retrieve(made.id),
            other.conversations.update(made.id, metadata={}),
            other.conversations.delete(made.id),
            other.conversations.items.create(made.id, items=[]),
            other.conversations.items.retrieve(item["id"], conversation_id=made.id),
            other.conversations.items.delete(item["id"], conversation_id=made.id),
            other.responses.create(model="a", input="hi", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError, match="is not kept here for this key"):
                await asked
        with pytest.raises(openai.NotFoundError):
            await listed(other, made.id)
        async with client_of(talk.url, MATE) as mate:
            assert await listed(mate, made.id) == [item]
        for key, kind in (("bk-wrong", openai.AuthenticationError), ("bk-viewer", openai.PermissionDeniedError)):
            async with client_of(talk.url, key) as nobody:
                with pytest.raises(kind):
                    await nobody.conversations.create()


async def test_items_of_kept_responses_may_be_referred_to() -> None:
    async with talking(says("one"), says("two")) as (talk, client):
        first = await client.responses.create(model="a", input="first")
        reference: Any = {"type": "item_reference", "id": first.output[0].id}
        made = await client.conversations.create(items=[reference])
        await client.responses.create(model="a", input="second", conversation=made.id)
        assert talk.said == ["one", "second"]
        unknown: Any = {"type": "item_reference", "id": "msg_resp_1_0"}
        with pytest.raises(openai.BadRequestError, match=r"items\[0\]: no item with that id is kept here"):
            await client.conversations.items.create(made.id, items=[unknown])
        with pytest.raises(openai.BadRequestError, match=r"input\[0\]: no item with that id is kept here"):
            await client.responses.create(model="a", input=[unknown], conversation=made.id)


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "", {"items": [{"role": "user", "content": "x"}] * 21}, "at most 20 at a time"),
        ("POST", "", {"items": 1}, "items"),
        ("POST", "", {"items": [1]}, "items[0]: must be an object"),
        ("POST", "", {"items": [{"id": "x"}]}, "items[0].type: must be a string"),
        ("POST", "", {"items": [{"role": 1, "content": "x"}]}, "items[0].role"),
        ("POST", "", {"items": [{"role": "user"}]}, "items[0].content"),
        ("POST", "/ID/items", {"items": [{"type": "x", "v": nested(300)}]}, "more than 100 levels of lists"),
        ("POST", "", {"metadata": {"a": 1}}, "metadata"),
        ("POST", "", {"metadata": {str(one): "x" for one in range(17)}}, "16 pairs"),
        ("POST", "", {"metadata": {"a": "x" * 513}}, "512"),
        ("POST", "", [], "object"),
        ("POST", "/ID", {}, "metadata: is missing"),
        ("POST", "/ID/items", {}, "items: is missing"),
        ("GET", "/ID/items?limit=0", None, "limit"),
        ("GET", "/ID/items?limit=101", None, "limit"),
        ("GET", "/ID/items?order=up", None, "order"),
        ("GET", "/ID/items?after=msg_9", None, "after: no item of this conversation has that id"),
    ],
)
async def test_what_is_wrong_is_told(method: str, path: str, body: object, says: str) -> None:
    async with talking() as (talk, client):
        made = await client.conversations.create()
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as asking:
            url = f"{talk.url}/v1/conversations{path.replace('ID', made.id)}"
            answer = await asking.request(method, url, json=body)
        assert (answer.status_code, says in answer.json()["error"]["message"]) == (400, True), answer.text


async def test_bounds_are_told_before_anything_is_asked() -> None:
    item: EasyInputMessageParam = {"role": "user", "content": "x"}
    async with talking(*[says("x" * 300)] * 9, most_bytes=1000, most_items=5) as (talk, client):
        made = await client.conversations.create(items=[item] * 4)
        with pytest.raises(openai.BadRequestError, match="at most 5 items: begin a new one"):
            await client.conversations.items.create(made.id, items=[item] * 2)
        assert len(await listed(client, made.id)) == 4
        with pytest.raises(openai.APIStatusError, match="larger than 1,000 bytes: begin a new one") as caught:
            await client.conversations.items.create(made.id, items=[{"role": "user", "content": "x" * 900}])
        assert caught.value.status_code == 413
        assert await refusal_of(client, input="x", conversation=made.id) is None
        assert await refusal_of(client, input="x", conversation=made.id) == "too_many_items"
        assert len(await listed(client, made.id)) == 6, "what a turn has added is kept all the same"
        long = await client.conversations.create(items=[{"role": "user", "content": "x" * 700}])
        assert await refusal_of(client, input="x", conversation=long.id) is None
        assert await refusal_of(client, input="x", conversation=long.id) == "body_too_large"
        asked = len(talk.model.calls)
        with pytest.raises(openai.APIStatusError, match="begin a new one"):
            await client.responses.create(model="a", input="x", conversation=made.id)
        assert len(talk.model.calls) == asked == 2
        with pytest.raises(openai.BadRequestError, match="cannot be used together"):
            await client.responses.create(model="a", input="x", conversation=made.id, previous_response_id="resp_1")
        with pytest.raises(openai.BadRequestError, match="cannot be used together"):
            await client.responses.input_tokens.count(
                model="a", input="x", conversation=made.id, previous_response_id="resp_1"
            )


async def test_where_nothing_is_kept_there_are_none() -> None:
    async with talking(seconds=0) as (_, client):
        with pytest.raises(openai.BadRequestError, match=r"kept_answers\.response_hours in breakeven\.yaml is 0"):
            await client.conversations.create()
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="a", input="x", conversation="conv_bk_1")
