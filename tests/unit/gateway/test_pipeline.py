"""The three invariants of the request path, driven by scripted backends and an in-memory ledger."""

import json

import pytest

from backends.scripted import Outcome, follow
from backends.usage import Usage
from gateway.errors import (
    Forbidden,
    InvalidRequest,
    ModelNotFound,
    Unauthenticated,
)
from gateway.ledger.entry import Status
from gateway.pipeline import Incoming
from gateway.routing.decide import decide
from gateway.routing.snapshot import request_facts_of
from tests.rig import KEY, RecordingCaller, Rig


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_passed_on_and_booked_exactly(stream: bool) -> None:
    rig = Rig()
    caller = await rig.ask(stream=stream)
    entry = rig.entry
    assert caller.is_complete
    assert entry.status is Status.completed
    assert (entry.input_tokens, entry.output_tokens) == (12, 4)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 12 * 1_000_000 + 4 * 4_000_000
    assert (entry.cost_lower_pico_usd, entry.cost_upper_pico_usd) == (28_000_000, 28_000_000)
    assert entry.intent.team == "red"
    assert entry.intent.tags == ("base", "extra")
    assert caller.headers["x-breakeven-model"] == "a"
    assert caller.headers["x-breakeven-difficulty"] == "0.2500"
    if stream:
        assert caller.sent[-1] == b"data: [DONE]\n\n"
        events = [json.loads(event.removeprefix(b"data: ")) for event in caller.sent[:-1]]
        assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "Hello, world."
        assert entry.time_to_first_token_seconds is not None
    else:
        assert caller.headers["x-breakeven-cost-usd"] == "0.000028"
        assert json.loads(caller.body)["choices"][0]["message"]["content"] == "Hello, world."
        assert entry.time_to_first_token_seconds is None, "a whole answer has no first token to time"


async def test_a_decision_replays_from_its_entry() -> None:
    rig = Rig(one=follow([Outcome(fault="unavailable")]))
    await rig.ask(max_tokens=50)
    again = decide(request_facts_of(rig.entry.intent), rig.pipeline.snapshot)
    assert again.decision == rig.entry.intent.decision


async def test_missing_usage_is_estimated_and_flagged() -> None:
    rig = Rig(one=follow([Outcome(usage=None)]))
    await rig.ask(stream=True)
    assert rig.entry.is_usage_estimated
    assert rig.entry.output_tokens == round(len("Hello, world.") / 4)


async def test_long_streams_leave_checkpoints() -> None:
    rig = Rig(one=follow([Outcome(pieces=("x" * 400,) * 10)]))
    await rig.ask(stream=True)
    tokens = [checkpoint.output_tokens for checkpoint in rig.ledger.checkpoints]
    assert tokens == [300, 600, 900]
    assert all(checkpoint.cost_so_far_pico_usd for checkpoint in rig.ledger.checkpoints)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", InvalidRequest),
        (b"[]", InvalidRequest),
        (b"{}", InvalidRequest),
        (b'{"model": "auto"}', InvalidRequest),
        (b'{"model": "auto", "messages": []}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user", "content": 5}]}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "max_tokens": -1}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "max_tokens": 1000000000000}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "n": 0}', InvalidRequest),
        (b'{"model": "gone", "messages": [{"role": "user", "content": "x"}]}', ModelNotFound),
        (b'{"model": "auto", "messages": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", InvalidRequest),
        (b'{"model": "auto", "x": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b', "messages": []}', InvalidRequest),
    ],
)
async def test_a_bad_body_is_refused_before_anything_is_booked(body: bytes, error: type[Exception]) -> None:
    rig = Rig()
    with pytest.raises(error):
        await rig.pipeline.answer(Incoming("chat.completions", KEY, body), RecordingCaller())
    assert not rig.ledger.entries
    assert not rig.ledger.open


async def test_who_may_not_ask_is_refused() -> None:
    rig = Rig()
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "x"}]}'
    for credential, error in ((None, Unauthenticated), ("Bearer nope", Unauthenticated), ("bk-viewer", Forbidden)):
        with pytest.raises(error):
            await rig.pipeline.answer(Incoming("chat.completions", credential, body), RecordingCaller())
    assert not rig.ledger.entries


async def test_usage_that_contradicts_itself_is_flagged_not_clamped() -> None:
    rig = Rig(one=follow([Outcome(usage=Usage(input_tokens=5, cached_input_tokens=9, output_tokens=1))]))
    await rig.ask()
    assert rig.entry.is_usage_estimated
    assert rig.entry.cost is None
    assert rig.entry.cached_input_tokens == 9
