"""How a stream of the Responses API ends when the gateway ends it."""

import json

from openai.types.responses import Response

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


async def test_a_broken_stream_ends_in_an_error_and_a_failed_response() -> None:
    """OpenAI's clients raise the one and only pass on the other; Codex 0.171 reads the other alone."""
    rig = Rig()
    broken = ScriptedBackend("one", follow([Outcome(fault="reset", fault_after_pieces=2)]))
    rig.pipeline.backends = {"one": TranslatingBackend(broken)}
    caller, body = RecordingCaller(), json.dumps({"model": "a", "input": "hello", "stream": True}).encode()
    await rig.pipeline.answer(Incoming("responses", f"Bearer {KEY}", body), caller)
    kinds, datas = zip(*(one.split("\ndata: ") for one in caller.sent[-1].decode().strip().split("\n\n")), strict=True)
    error, failed = map(json.loads, datas)
    assert kinds == ("event: error", "event: response.failed")
    assert (error["type"], error["code"], failed["type"]) == ("error", "stream_broken", "response.failed")
    assert "broke off" in error["message"]
    assert error["error"]["message"] == failed["response"]["error"]["message"] == error["message"]
    assert error["sequence_number"] < failed["sequence_number"]
    assert Response.model_validate(failed["response"], strict=True).status == "failed"
