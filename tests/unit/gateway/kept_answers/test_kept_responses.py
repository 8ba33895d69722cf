"""Responses that the gateway keeps: continuing them, whose they are, and for how long."""

import asyncio
import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.errors import BodyTooLarge, InvalidRequest, Overloaded, StoreDown, UpstreamFailed
from gateway.kept_answers.kept_responses import REST_SECONDS, KeptResponses
from gateway.kept_answers.kept_turns import TurnStore
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.ledger.entry import tenant_of
from gateway.request.many_values import MOST
from gateway.request.run import Incoming
from tests.hand_clock import HandClock
from tests.rig import KEY, RecordingCaller, Rig

MINE = tenant_of("red", "key-1")


class BrokenTurns:
    """A store that is down while `is_down`, and counts calls."""

    def __init__(self) -> None:
        self.is_down = True
        self.asked = 0
        self._turns = MemoryTurns()

    async def get(self, name: str, seconds: float) -> bytes | None:
        self._ask()
        return await self._turns.get(name, seconds)

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        self._ask()
        await self._turns.put(name, value, seconds, owner=owner)

    async def delete(self, name: str, *, owner: str = "") -> bool:
        self._ask()
        return await self._turns.delete(name, owner=owner)

    def _ask(self) -> None:
        self.asked += 1
        if self.is_down:
            raise StoreDown("no")


class Talk:
    """A rig whose model `a` has no Responses API, recording what the model is sent."""

    def __init__(
        self, outcomes: Sequence[Outcome] = (Outcome(),), *, store: TurnStore | None = None, **settings: Any
    ) -> None:
        self.clock = HandClock()
        self.rig = Rig()
        self.model = ScriptedBackend("one", follow(outcomes), keeps_calls=True)
        self.rig.pipeline.backends = {"one": TranslatingBackend(self.model), "two": self.rig.two}
        self.store = store or MemoryTurns(monotonic=self.clock)
        self.kept_responses = self.rig.pipeline.kept_responses = KeptResponses(
            self.store, self.rig.pipeline.keys.conversation_secret, monotonic=self.clock, **settings
        )

    async def say(self, given: object, *, key: str = KEY, **fields: object) -> dict[str, Any]:
        caller = RecordingCaller()
        body = json.dumps({"model": "a", "input": given, **fields}).encode()
        await self.rig.pipeline.answer(Incoming("responses", f"Bearer {key}", body), caller)
        if not fields.get("stream"):
            return json.loads(caller.body)
        [data] = [
            one.partition(b"data: ")[2] for one in caller.body.split(b"\n\n") if one.startswith(b"event: response.comp")
        ]
        return json.loads(data)["response"]

    @property
    def messages(self) -> list[Any]:
        """The last messages sent to the model."""
        return json.loads(self.model.calls[-1].body)["messages"]


def texts(messages: list[Any]) -> list[tuple[str, str]]:
    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    return [(one["role"], text(one["content"])) for one in messages]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_response_goes_on_from_the_one_before(is_stream: bool) -> None:
    talk = Talk([Outcome(pieces=("one",)), Outcome(pieces=("two",)), Outcome(pieces=("three",))])
    first = await talk.say("first", stream=is_stream, instructions="Be brief.")
    assert (first["store"], first["previous_response_id"]) == (True, None)
    second = await talk.say("second", stream=is_stream, previous_response_id=first["id"])
    assert (second["store"], second["previous_response_id"]) == (True, first["id"])
    assert texts(talk.messages) == [("user", "first"), ("assistant", "one"), ("user", "second")], "no old instructions"
    await talk.say([{"role": "user", "content": "third"}], stream=is_stream, previous_response_id=second["id"])
    expected = ["first", "one", "second", "two", "third"]
    assert [text for _, text in texts(talk.messages)] == expected
    assert talk.rig.ledger.entries[-1].intent.decision.facts.input_tokens > (
        talk.rig.ledger.entries[0].intent.decision.facts.input_tokens
    ), "decided and held for by all of it"


async def test_a_result_that_no_earlier_turn_called_for_is_refused_unless_the_client_sends_all() -> None:
    talk = Talk([Outcome(pieces=("one",))] * 2)
    first = await talk.say("first")
    result = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    with pytest.raises(InvalidRequest, match="No tool call found for function call output with call_id call_1"):
        await talk.say([result], previous_response_id=first["id"])
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    second = await talk.say([call, result], previous_response_id=first["id"])
    await talk.say([result], previous_response_id=second["id"])
    assert (await talk.say([result]))["status"] == "completed", "clients drop the beginning of a long conversation"


async def test_a_conversation_may_fork() -> None:
    talk = Talk([Outcome(pieces=("one",))] * 3)
    first = await talk.say("first")
    for other in ("left", "right"):
        await talk.say(other, previous_response_id=first["id"])
        assert [text for _, text in texts(talk.messages)] == ["first", "one", other]


async def test_items_are_referred_to_by_their_ids() -> None:
    """The AI SDK sends user messages in full and the model's as references, in any order and from any turn."""
    talk = Talk([Outcome(pieces=("one",)), Outcome(pieces=("two",)), Outcome(pieces=("three",))])
    items: list[dict[str, Any]] = [{"role": "user", "content": "first"}]
    for text in ("second", "third"):
        answer = await talk.say(items)
        items += [{"type": "item_reference", "id": item["id"]} for item in answer["output"]]
        items += [{"role": "user", "content": text}]
    await talk.say(items)
    assert [text for _, text in texts(talk.messages)] == ["first", "one", "second", "two", "third"]


async def test_nothing_is_kept_of_who_asks_for_it() -> None:
    talk = Talk()
    first = await talk.say("first", store=False)
    assert first["store"] is False
    with pytest.raises(UpstreamFailed, match=f"Previous response with id '{first['id']}' not found: it is not kept"):
        await talk.say("second", previous_response_id=first["id"])


async def test_nothing_is_kept_where_no_hours_are_set() -> None:
    store = BrokenTurns()
    talk = Talk(store=store, seconds=0)
    assert (await talk.say("first"))["store"] is False
    assert not store.asked


async def test_another_tenant_finds_nothing() -> None:
    talk = Talk([Outcome()] * 3)
    talk.rig.add_key("bk-other", KeyRecord("key-9", "other", "app", team="blue"))
    talk.rig.add_key("bk-mate", KeyRecord("key-8", "mate", "app", team="red"))
    first = await talk.say("first")
    await talk.say("second", key="bk-mate", previous_response_id=first["id"])
    with pytest.raises(UpstreamFailed, match="is not kept here"):
        await talk.say("second", key="bk-other", previous_response_id=first["id"])
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    with pytest.raises(UpstreamFailed, match="the item is not kept here"):
        await talk.say([reference], key="bk-other")


async def test_a_tenant_who_says_much_pushes_out_its_own() -> None:
    talk = Talk(store=MemoryTurns(max_bytes=40_000))
    talk.rig.add_key("bk-other", KeyRecord("key-9", "other", "app", team="blue"))
    first = await talk.say("first", key="bk-other")
    for _ in range(20):
        await talk.say("x" * 3000)
    assert await talk.say("second", key="bk-other", previous_response_id=first["id"])


async def test_what_is_referred_to_stays_and_the_rest_is_forgotten() -> None:
    talk = Talk([Outcome()] * 9, seconds=100.0)
    first = await talk.say("first")
    talk.clock.now += 60
    second = await talk.say("second", previous_response_id=first["id"])
    talk.clock.now += 60
    third = await talk.say("third", previous_response_id=second["id"])
    assert [text for role, text in texts(talk.messages) if role == "user"] == ["first", "second", "third"]
    talk.clock.now += 101
    with pytest.raises(UpstreamFailed, match="is not kept here"):
        await talk.say("fourth", previous_response_id=third["id"])


async def test_who_goes_on_from_what_has_lost_its_beginning_is_told() -> None:
    talk = Talk([Outcome()] * 3)
    first = await talk.say("first")
    second = await talk.say("second", previous_response_id=first["id"])
    assert await talk.kept_responses.forget(MINE, first["id"])
    with pytest.raises(InvalidRequest, match="send the whole conversation") as caught:
        await talk.say("third", previous_response_id=second["id"])
    assert caught.value.code == "previous_response_not_found"


async def test_a_store_that_is_down_ends_no_answer_and_is_not_asked_again_at_once() -> None:
    store = BrokenTurns()
    talk = Talk([Outcome()] * 9, store=store)
    first = await talk.say("first")
    await talk.say("again")
    assert store.asked == 1
    with pytest.raises(Overloaded, match="try again"):
        await talk.say("second", previous_response_id=first["id"])
    store.is_down = False
    talk.clock.now += REST_SECONDS + 1
    kept = await talk.say("first")
    await talk.say("second", previous_response_id=kept["id"])


async def test_a_failed_answer_is_not_kept() -> None:
    store = BrokenTurns()
    talk = Talk([Outcome(fault="reset", fault_after_pieces=1)], store=store)
    caller = RecordingCaller()
    body = json.dumps({"model": "a", "input": "first", "stream": True}).encode()
    await talk.rig.pipeline.answer(Incoming("responses", f"Bearer {KEY}", body), caller)
    assert not store.asked


async def test_what_is_too_large_is_not_kept_and_says_so() -> None:
    store = BrokenTurns()
    talk = Talk(store=store, largest_turn_bytes=1000)
    answer = await talk.say("x" * 1000)
    assert answer["store"] is False
    assert not store.asked


async def test_references_to_one_long_answer_are_bounded_before_they_are_made_whole() -> None:
    """At 100 KB each, 100,000 references made 10 GB of memory from a request of 8 MB."""
    talk = Talk([Outcome(pieces=("x" * 100_000,))] * 2)
    first = await talk.say("first")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="begin a new conversation"):
            await talk.say([reference] * 2000)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    await talk.say([reference] * 2, store=False)
    assert len(talk.messages) == 2


async def test_what_requests_under_way_go_on_from_has_a_bound_in_all() -> None:
    """A request of a few bytes may expand to megabytes, which no limit on received bytes covers."""
    talk = Talk([Outcome()] * 9, most_added_bytes=5000)
    first = await talk.say("x" * 2000)
    asked = [talk.say("on", previous_response_id=first["id"], store=False) for _ in range(5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, BaseException)]
    assert len(refused) == 3
    assert all(isinstance(one, Overloaded) and "under way" in one.message for one in refused)
    assert (await talk.say("on", previous_response_id=first["id"]))["status"] == "completed", "there is room again"


async def test_a_body_of_too_many_values_is_refused_before_its_references_are_looked_for() -> None:
    talk = Talk()
    with pytest.raises(InvalidRequest, match="too many values"):
        await talk.say([{"type": "item_reference"}, *([{}] * MOST.containers)])


async def test_a_conversation_that_is_too_long_is_refused() -> None:
    talk = Talk([Outcome()] * 3, most_bytes=5000)
    first = await talk.say("x" * 2000)
    with pytest.raises(BodyTooLarge, match="begin a new conversation"):
        await talk.say("y" * 2000, previous_response_id=first["id"])


async def test_a_store_that_others_read_tells_nothing_and_what_is_altered_does_not_open() -> None:
    seen: dict[str, bytes] = {}

    class Seen(MemoryTurns):
        async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
            seen[name] = value
            await super().put(name, value, seconds, owner=owner)

    talk = Talk([Outcome(pieces=("very secret answer",))] * 2, store=Seen())
    first = await talk.say("very secret question")
    [(name, value)] = seen.items()
    assert b"secret" not in value
    assert MINE not in name
    await talk.store.put(name, value[:-1] + bytes([value[-1] ^ 1]), 60)
    assert await talk.kept_responses.find(MINE, first["id"]) is None


@pytest.mark.parametrize("given", [b"{", b"[1]", b'{"model":"a","input":7}', b'{"model":"a","input":{"a":1}}'])
async def test_what_is_no_request_is_left_to_whoever_reads_it_next(given: bytes) -> None:
    talk = Talk()
    incoming = Incoming("responses", KEY, given)
    assert await talk.kept_responses.resume(incoming, MINE) == (incoming, None)
