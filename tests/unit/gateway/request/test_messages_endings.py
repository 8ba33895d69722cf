"""How a stream in Anthropic's format ends when the gateway ends it: with closed blocks and usage, in that format."""

import json
from collections.abc import MutableMapping
from typing import Any

from backends.endpoints.messages_events import OpenBlock
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.api.messages import MessagesCaller
from gateway.limits.admission import Admission
from gateway.limits.values import Limits
from gateway.request.run import Incoming
from tests.rig import KEY, Rig

ASKED = {"model": "a", "max_tokens": 50_000, "stream": True, "messages": [{"role": "user", "content": "hello"}]}
Event = dict[str, Any]


async def events_of(rig: Rig) -> list[Event]:
    """The events that a caller receives."""
    sent: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    caller = MessagesCaller(send)
    await rig.pipeline.answer(Incoming("messages", f"Bearer {KEY}", json.dumps(ASKED).encode()), caller)
    events: list[Event] = []
    for block in b"".join(sent).decode().strip().split("\n\n"):
        kind, _, data = block.partition("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
    return events


async def test_a_spent_budget_closes_the_block_and_ends_the_message() -> None:
    rig = Rig(admission=Admission({"key-1": Limits(budget_usd="0.005")}))
    long = ScriptedBackend("one", follow([Outcome(pieces=("x" * 400,) * 40)]))
    rig.pipeline.backends = {"one": TranslatingBackend(long)}
    events = await events_of(rig)
    assert [event["type"] for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[-3]["index"] == 0
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    assert events[-2]["usage"]["output_tokens"] > 0
    assert rig.entry.error == "budget_reached"


async def test_a_broken_stream_ends_in_an_error() -> None:
    rig = Rig(one=follow([Outcome(fault="reset", fault_after_pieces=2)]))
    events = await events_of(rig)
    assert events[-1]["type"] == "error"
    assert "broke off" in events[-1]["error"]["message"]


def test_an_open_block_is_known_whatever_the_pieces() -> None:
    start = b'event: content_block_start\ndata: {"type":"content_block_start","index":3,"content_block":{}}\n\n'
    stop = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":3}\n\n'
    quoted = b'event: content_block_delta\ndata: {"text":"event: content_block_stop\\n"}\n\n'
    for pieces, is_open in (
        ([start], True),
        ([start, quoted], True),
        ([start, stop], False),
        ([start + stop], False),
        ([start, stop + start], True),
        ([], False),
    ):
        block = OpenBlock()
        for piece in pieces:
            block.note(piece)
        assert bool(block.close()) is is_open, pieces
        assert block.close() == b""
