"""Responses written in the background where the worker, its store or its caller fails."""

import asyncio
import gc
import json
from typing import Any

import pytest

from backends.endpoints.responses_items import ResponseHead
from backends.protocol import Chunk
from gateway.api.kept_responses import ask_kept_response
from gateway.errors import BodyTooLarge, InvalidRequest, Overloaded
from gateway.kept_answers.keeping_caller import keeping
from gateway.kept_answers.kept_conversations import KeptConversations
from gateway.kept_answers.kept_responses import Resumed
from gateway.kept_answers.kept_turns import Turn
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.open_responses import DEAD_SECONDS, Open
from gateway.ledger.entry import Status
from gateway.process.log_lines import MOST_ALIKE, FewAlike
from gateway.request.run import Accepted, Incoming
from tests.rig import RecordingCaller
from tests.unit.gateway.kept_answers.background_rig import ACCEPTED, TENANT, Background


@pytest.mark.parametrize("named", ["conv_1", {"id": "conv_1"}])
def test_it_names_its_conversation_from_the_beginning_unless_nothing_was_appended(named: object) -> None:
    opened = Open(TENANT, ResponseHead("resp_1", 1, {"model": "a", "conversation": named}), ACCEPTED)
    assert json.loads(opened.document("in_progress"))["conversation"] == {"id": "conv_1"}
    assert "conversation" not in json.loads(opened.document("failed"))


async def test_whose_worker_is_dead_is_not_waited_for_forever() -> None:
    made = Background()
    task = await made.begun()
    made.now += DEAD_SECONDS - 1
    assert (await made.shown())["status"] == "in_progress"
    async with asyncio.timeout(60):
        while (await made.shown())["status"] == "in_progress":  # a living worker signs, so it must be past that
            made.now += DEAD_SECONDS * 10
    shown = await made.shown()
    assert (shown["status"], shown["error"]["code"]) == ("failed", "server_error")
    assert "Ask again" in shown["error"]["message"]
    made.may_answer.set()
    await task
    assert (await made.shown())["status"] == "completed", "it was only slow"


async def test_a_living_worker_gives_signs() -> None:
    made = Background()
    task = await made.begun()
    made.now += DEAD_SECONDS + 1
    async with asyncio.timeout(60):
        while (await made.shown())["status"] != "in_progress":
            await asyncio.sleep(0.001)
    made.may_answer.set()
    await task


async def test_a_worker_that_stops_says_so_and_books() -> None:
    made = Background()
    task = await made.begun()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    shown = await made.shown()
    assert (shown["status"], "Ask again" in shown["error"]["message"]) == ("failed", True)
    assert made.rig.entry.status is Status.cancelled


async def test_what_cannot_be_kept_is_not_begun() -> None:
    made = Background()
    made.store.is_down = True
    with pytest.raises(Overloaded, match="background: responses cannot be kept right now"):
        await made.begin()
    assert made.caller.status is None
    assert made.rig.entry.status is Status.cancelled, "it was accepted before"


async def test_an_answer_that_cannot_be_kept_ends_in_a_failure_once_that_can_be_said() -> None:
    made = Background()
    task = await made.begun()
    made.store.is_down = True
    made.may_answer.set()
    await task
    assert (await made.shown())["status"] == "in_progress"
    made.now += DEAD_SECONDS + 1
    assert (await made.shown())["status"] == "failed"
    assert made.rig.entry.status is Status.completed


async def test_a_store_that_is_down_does_not_fill_the_log_with_a_line_of_each_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = [Background(), Background()]
    tasks = [await one.begun() for one in made]
    for one in made:
        one.store.is_unreadable = True
    async with asyncio.timeout(60):
        while len(caplog.records) < MOST_ALIKE + 10:
            await asyncio.sleep(0.001)
    for one in made:
        one.store.is_unreadable = False
        one.may_answer.set()
    await asyncio.gather(*tasks)
    for record in caplog.records:
        record.created = 0.0
    few = FewAlike()
    assert len([record for record in caplog.records if few.filter(record)]) == MOST_ALIKE


async def test_an_answer_too_long_to_keep_is_a_failure() -> None:
    made = Background()
    task = await made.begun()
    made.kept.largest_turn_bytes = 100
    made.may_answer.set()
    await task
    assert (await made.shown())["status"] == "failed"


async def test_what_it_refers_to_is_too_long_to_keep_before_it_is_paid_for() -> None:
    made = Background()
    made.kept.largest_turn_bytes = 10
    asked = Incoming("responses", None, b'{"input": "hello", "background": true}', accepted=lambda _: None)
    with pytest.raises(BodyTooLarge, match=r"background: .* with what it refers to, cannot be kept"):
        await made.kept.resume(asked, TENANT)


async def test_an_answer_with_a_key_twice_is_paid_for_and_kept() -> None:
    made = Background()
    caller = keeping(made.kept, RecordingCaller(), Resumed(TENANT, b"[]", None, True, is_background=True), "r1")
    await caller.start(status=200, content_type="application/json", headers={})
    payload = b'{"id": "theirs", "status": "queued", "status": "completed"}'
    await caller.send(payload, chunk=Chunk(payload), is_last=True)
    turn = await made.kept.find(TENANT, "resp_r1")
    assert turn is not None
    assert json.loads(turn.response) == {"id": "resp_r1", "status": "completed", "background": True}


async def test_what_was_cancelled_stays_so_though_its_answer_came_before_its_worker_noticed() -> None:
    made = Background(look_seconds=60.0)
    task = await made.begun()
    response_id = json.loads(made.caller.body)["id"]

    async def asked(what: str) -> dict[str, Any]:
        answer = await ask_kept_response(made.kept, TENANT, response_id, what, {})
        assert answer is not None
        return json.loads(answer)

    assert (await asked("POST /cancel"))["status"] == "cancelled"
    made.may_answer.set()
    await task
    assert made.rig.entry.status is Status.completed
    shown = await asked("GET")
    assert (shown["status"], shown["output"]) == ("cancelled", [])
    assert (await asked("POST /cancel"))["status"] == "cancelled"


async def test_a_cancelled_turn_is_not_in_its_conversation_though_its_answer_came_before_its_worker_noticed() -> None:
    made = Background(look_seconds=60.0)
    conversations = KeptConversations(MemoryTurns(), MemoryTurns(), made.rig.pipeline.keys.conversation_secret)
    made.rig.pipeline.kept_conversations = conversations
    conversation_id, _ = await conversations.create(TENANT, b"[]", {})
    task = await made.begun(conversation=conversation_id)
    await made.opened.cancel(TENANT, json.loads(made.caller.body)["id"])
    made.may_answer.set()
    await task
    assert (await made.shown())["status"] == "cancelled"
    assert not (await conversations.find(TENANT, conversation_id)).ids


async def test_who_is_told_of_a_cancellation_that_it_was_cancelled_is_never_told_otherwise() -> None:
    made = Background()
    task = await made.begun()
    response_id = json.loads(made.caller.body)["id"]
    open_still = await made.kept.find(TENANT, response_id)
    made.may_answer.set()
    await task
    await made.opened.cancel(TENANT, response_id)  # by who found it open just before
    assert open_still is not None
    told = await made.opened.shown(TENANT, response_id, open_still)
    assert (json.loads(told)["status"], (await made.shown())["status"]) == ("cancelled", "cancelled")


async def test_what_it_continues_is_known_while_it_is_written_and_after_it_was_cancelled() -> None:
    made = Background()
    before = {"id": "resp_before", "output": [{"type": "message", "role": "assistant", "content": "hi"}]}
    asked = b'[{"type":"message","role":"user","content":"hello"}]'
    await made.kept.put(TENANT, "resp_before", Turn(json.dumps(before).encode(), asked, None))
    task = await made.begun(previous_response_id="resp_before", input="and more")
    response_id = json.loads(made.caller.body)["id"]
    for _ in range(2):
        turn = await made.kept.find(TENANT, response_id)
        assert turn is not None
        assert len(await made.kept.input_items(TENANT, turn)) == 3
        await made.opened.cancel(TENANT, response_id)
        await task
    again = Incoming("responses", None, json.dumps({"input": "go on", "previous_response_id": response_id}).encode())
    resumed, _ = await made.kept.resume(again, TENANT)
    said = [item["content"] for item in json.loads(resumed.body)["input"]]
    assert said == ["hello", "hi", "and more", "go on"]


async def test_a_cancelled_turn_of_a_conversation_is_not_continued_without_it() -> None:
    made = Background()
    accepted = Accepted("1", b"[]", None, "conv_bk_1")
    opened = Open(TENANT, ResponseHead("resp_1", 1, {"model": "a"}), accepted)
    await made.opened.open(opened)
    await made.opened.close(opened, "cancelled")
    with pytest.raises(InvalidRequest, match="belongs to a conversation"):
        await made.kept.resume(Incoming("responses", None, b'{"previous_response_id": "resp_1", "input": "x"}'), TENANT)


async def test_an_input_is_not_held_decoded_until_the_end() -> None:
    gc.collect()  # earlier tests' would be found too
    made = Background()
    task = await made.begun()
    [opened] = [one for one in gc.get_objects() if isinstance(one, Open)]
    assert "input" not in opened.head.asked
    made.may_answer.set()
    await task


async def test_its_answer_is_kept_once_the_store_is_back() -> None:
    made = Background()
    task = await made.begun()
    made.store.is_down = True
    await made.kept.keep(Resumed(TENANT, b"[]", None, is_kept=True), "resp_another", b"{}")
    before = made.store.refused
    made.may_answer.set()
    async with asyncio.timeout(60):
        while made.store.refused == before:
            await asyncio.sleep(0)
    made.store.is_down = False
    await task
    assert (await made.shown())["status"] == "completed"


async def test_a_caller_that_leaves_before_it_is_accepted_wanted_nothing() -> None:
    made = Background()
    task = made.begin()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.caller.status is None
    assert not made.rig.ledger.open
