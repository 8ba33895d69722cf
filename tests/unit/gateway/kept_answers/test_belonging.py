"""Which conversation a request belongs to, and what its response says about it."""

import json
from collections.abc import Mapping

import pytest

from backends.protocol import Chunk
from gateway.errors import InvalidRequest
from gateway.kept_answers.belonging import BelongingCaller, named_conversation
from gateway.kept_answers.kept_conversations import Belonging, KeptConversations
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.request.many_values import MOST
from tests.rig import RecordingCaller

TENANT = "team red"
OUTPUT = [{"type": "message", "id": "msg_1", "role": "assistant", "content": []}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"conversation": "conv_bk_1"}', "conv_bk_1"),
        (b'{"conversation": {"id": "conv_bk_1"}}', "conv_bk_1"),
        (b'{"c\\u006fnversation": "conv_bk_1", "previous_response_id": null}', "conv_bk_1"),
        (b'{"conversation": "conv_1", "previous_response_id": "resp_1"}', None),
        (b'{"conversation": {"id": 1}}', None),
        (b'{"conversation": null}', None),
        (b'{"conversation": 7}', None),
        (b'{"input": "of a conversation"}', None),
        (b'{"input": "x"}', None),
        (b'{"conversation', None),
        (b'["conversation"]', None),
        (b"\xff conversation", None),
    ],
)
def test_a_conversation_that_was_made_here_is_known_by_its_name(body: bytes, expected: str | None) -> None:
    assert named_conversation(body) == expected


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be used together"):
        named_conversation(b'{"conversation": "conv_bk_1", "previous_response_id": "resp_1"}')
    with pytest.raises(InvalidRequest, match="too many values"):
        named_conversation(b'{"conversation": "conv_bk_1", "input": [%b{}]}' % (b"{}," * MOST.containers))


class Turn:
    def __init__(self) -> None:
        self.kept = KeptConversations(MemoryTurns(), MemoryTurns(), lambda tenant: tenant.encode().ljust(32))
        self.name = ""
        self.told = RecordingCaller()
        self.is_cancelled = False

    async def _is_cancelled(self) -> bool:
        return self.is_cancelled

    async def begin(self, content_type: str) -> BelongingCaller:
        self.name, _ = await self.kept.create(TENANT, b"[]", {})
        belonging = Belonging(TENANT, self.name, b"[]")
        caller = BelongingCaller(
            self.told, self.kept, belonging, b'[{"role":"user","content":"hi"}]', self._is_cancelled
        )
        headers: Mapping[str, str] = {}
        await caller.start(status=200, content_type=content_type, headers=headers)
        return caller

    async def count(self) -> int:
        return len((await self.kept.find(TENANT, self.name)).ids)


def response(status: str) -> bytes:
    return json.dumps({"id": "resp_1", "status": status, "output": OUTPUT}).encode()


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


@pytest.mark.parametrize(("status", "added"), [("completed", 2), ("incomplete", 2), ("cancelled", 0)])
async def test_a_whole_answer_that_ended_is_appended(status: str, added: int) -> None:
    turn = Turn()
    caller = await turn.begin("application/json")
    body = response(status)
    await caller.send(body, chunk=Chunk(body), is_last=True)
    assert json.loads(turn.told.body) == {**json.loads(body), "conversation": {"id": turn.name}}
    assert await turn.count() == added


@pytest.mark.parametrize("is_together", [True, False])
async def test_of_a_stream_every_event_with_a_response_names_it_and_the_others_stay_as_they_were(
    is_together: bool,
) -> None:
    turn = Turn()
    caller = await turn.begin("text/event-stream")
    delta = event("response.output_text.delta", delta='event: response.completed\ndata: {"response": 1}\n\n')
    given = [
        event("response.created", response=json.loads(response("in_progress"))),
        delta,
        event("response.completed", response=json.loads(response("completed")), sequence_number=3),
    ]
    for payload in [b"".join(given)] if is_together else given:
        await caller.send(payload, chunk=Chunk(payload))
    first, second, third, rest = turn.told.body.split(b"\n\n")
    for one, status in ((first, "in_progress"), (third, "completed")):
        told = json.loads(one.partition(b"data: ")[2])["response"]
        assert told == {**json.loads(response(status)), "conversation": {"id": turn.name}}
    assert (second + b"\n\n", rest) == (delta, b"")
    assert await turn.count() == 2


async def test_an_ending_of_our_own_appends_nothing() -> None:
    turn = Turn()
    caller = await turn.begin("text/event-stream")
    given = event("response.incomplete", response=json.loads(response("incomplete")))
    await caller.send(given, is_last=True)
    assert turn.told.body == given
    assert await turn.count() == 0


async def test_what_could_not_be_appended_belongs_to_none() -> None:
    turn = Turn()
    caller = await turn.begin("application/json")
    await turn.kept.delete(TENANT, turn.name)
    body = response("completed")
    await caller.send(body, chunk=Chunk(body), is_last=True)
    assert json.loads(turn.told.body)["conversation"] is None


async def test_an_answer_with_a_key_twice_leaves_as_it_came() -> None:
    turn = Turn()
    caller = await turn.begin("application/json")
    body = response("completed").replace(b'"id"', b'"id": "x", "id"', 1)
    await caller.send(body, chunk=Chunk(body), is_last=True)
    assert turn.told.body == body
    assert await turn.count() == 2


@pytest.mark.parametrize("rest", [b"", b', "output": null', b', "output": {}'])
async def test_an_answer_without_items_leaves_and_belongs_to_none(rest: bytes) -> None:
    """It is paid for, so the caller gets it even though it cannot be kept."""
    turn = Turn()
    caller = await turn.begin("application/json")
    body = b'{"id": "resp_1", "status": "completed"%b}' % rest
    await caller.send(body, chunk=Chunk(body), is_last=True)
    assert json.loads(turn.told.body) == {**json.loads(body), "conversation": None}
    assert await turn.count() == 0


@pytest.mark.parametrize("data", [b"{}", b'{"response": {}, "response": {}}', b"[]"])
async def test_an_event_without_one_response_leaves_as_it_came(data: bytes) -> None:
    turn = Turn()
    caller = await turn.begin("text/event-stream")
    given = b"event: response.completed\ndata: %b\n\n" % data
    await caller.send(given, chunk=Chunk(given))
    assert (turn.told.body, await turn.count()) == (given, 0)
