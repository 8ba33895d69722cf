"""Budgets and calls in Gemini's format: streams end in that format, whole answers get a limit, tools without a price
are refused."""

import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from backends.scripted import Outcome, follow
from gateway.api.asgi_caller import AsgiCaller
from gateway.api.gemini import ListCaller
from gateway.errors import BudgetExhausted
from gateway.limits.admission import Admission
from gateway.limits.values import Limits
from gateway.request.run import Incoming
from tests.rig import KEY, RecordingCaller, Rig

Event = dict[str, Any]
HI = b'{"contents":[{"parts":[{"text":"hello"}]}]}'
LONG = Outcome(pieces=("x" * 400,) * 40)


def asked(body: bytes = HI, *, is_stream: bool) -> Incoming:
    return Incoming("generate_content", f"Bearer {KEY}", body, model="a", is_stream=is_stream)


async def sent_by(rig: Rig, kind: type[AsgiCaller]) -> bytes:
    """The bytes that the caller of a stream receives."""
    sent: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    await rig.pipeline.answer(asked(is_stream=True), kind(send))
    return b"".join(sent)


def events_in(sent: bytes) -> list[Event]:
    return [json.loads(event.removeprefix(b"data: ")) for event in sent.split(b"\n\n") if event]


async def test_a_spent_budget_ends_the_answer_as_its_limit_would() -> None:
    rig = Rig(one=follow([LONG]), admission=Admission({"key-1": Limits(budget_usd="0.005")}))
    last = events_in(await sent_by(rig, AsgiCaller))[-1]
    assert last["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert last["usageMetadata"]["candidatesTokenCount"] > 0
    assert last["responseId"] == rig.entry.intent.request_id
    assert rig.entry.error == "budget_reached"


async def test_a_list_is_one_however_it_ends() -> None:
    rig = Rig(one=follow([LONG]), admission=Admission({"key-1": Limits(budget_usd="0.005")}))
    events = json.loads(await sent_by(rig, ListCaller))
    assert events[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    broken = Rig(one=follow([Outcome(fault="reset", fault_after_pieces=2)]))
    events = json.loads(await sent_by(broken, ListCaller))
    assert "broke off" in events[-1]["error"]["message"]


async def test_a_whole_answer_is_no_longer_than_what_is_held_for_it() -> None:
    rig = Rig(admission=Admission({"key-1": Limits(budget_usd="1")}))
    await rig.pipeline.answer(asked(is_stream=False), RecordingCaller())
    [call] = rig.one.calls
    assert json.loads(call.body)["max_tokens"] == 4096


async def test_what_google_runs_needs_a_price_under_a_budget() -> None:
    rig = Rig(admission=Admission({"key-1": Limits(budget_usd="1")}))
    searching = HI[:-1] + b',"tools":[{"googleSearch":{}}]}'
    with pytest.raises(BudgetExhausted, match="price"):
        await rig.pipeline.answer(asked(searching, is_stream=False), RecordingCaller())
    assert not rig.one.calls
