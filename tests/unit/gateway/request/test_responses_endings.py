"""How a stream of the Responses API ends when the gateway ends it."""

import json

from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.limits.admission import Admission
from gateway.limits.values import Limits
from gateway.request.run import Incoming
from tests.rig import KEY, RecordingCaller, Rig


async def test_a_spent_budget_ends_it_as_incomplete() -> None:
    rig = Rig(admission=Admission({"key-1": Limits(budget_usd="0.005")}))
    long = ScriptedBackend("one", follow([Outcome(pieces=("x" * 400,) * 40)]))
    rig.pipeline.backends = {"one": TranslatingBackend(long)}
    caller, body = RecordingCaller(), json.dumps({"model": "a", "input": "hello", "stream": True}).encode()
    await rig.pipeline.answer(Incoming("responses", f"Bearer {KEY}", body), caller)
    kind, _, data = caller.sent[-1].decode().strip().partition("\n")
    event = json.loads(data.removeprefix("data: "))
    assert (kind, event["type"]) == ("event: response.incomplete", "response.incomplete")
    assert event["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert rig.entry.error == "budget_reached"


async def test_a_broken_stream_ends_in_an_error_event() -> None:
    rig = Rig()
    broken = ScriptedBackend("one", follow([Outcome(fault="reset", fault_after_pieces=2)]))
    rig.pipeline.backends = {"one": TranslatingBackend(broken)}
    caller, body = RecordingCaller(), json.dumps({"model": "a", "input": "hello", "stream": True}).encode()
    await rig.pipeline.answer(Incoming("responses", f"Bearer {KEY}", body), caller)
    kind, _, data = caller.sent[-1].decode().strip().partition("\n")
    event = json.loads(data.removeprefix("data: "))
    assert (kind, event["type"], event["code"]) == ("event: error", "error", "stream_broken")
    assert "broke off" in event["message"]
    assert event["error"]["message"] == event["message"]
