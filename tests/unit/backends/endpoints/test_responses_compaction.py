"""Compactions of conversations in front of a chat backend, and what becomes of them in later requests."""

import json
from typing import Any

import pytest

from backends.endpoints.responses_compaction import ASK, LEAD, body_with_summary, compaction_item, has_summary
from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_format import chat_body_from_responses
from backends.endpoints.responses_items import ResponseHead
from backends.formats.past_thinking import unsealed
from backends.http.sse import SseParser
from backends.protocol import Call, Chunk
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend

Item = dict[str, Any]
USER: Item = {"role": "user", "content": "Sail."}
SYSTEM: Item = {"type": "message", "role": "developer", "content": "Be brief."}
SAID: Item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Where?"}]}
CALLED: Item = {"type": "function_call", "call_id": "c", "name": "tide", "arguments": "{}"}
RESULT: Item = {"type": "function_call_output", "call_id": "c", "output": "low"}
TRIGGER: Item = {"type": "compaction_trigger"}
OURS = compaction_item("resp_1", "Wir segeln. ⛵")
THEIRS: Item = {"type": "compaction", "encrypted_content": "gAAAAABq"}
TOOL = {"type": "function", "name": "tide", "parameters": {}}


def body(*items: Item, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": items, **fields}).encode()


def chat(*items: Item, **fields: Any) -> dict[str, Any]:
    return json.loads(chat_body_from_responses(body(*items, **fields)))


def test_a_summary_is_asked_for_with_the_tools_of_the_conversation_but_without_calls() -> None:
    """Without its tools the prompt would not begin as the provider's cache has it, and Anthropic refuses calls."""
    fields: Any = {"tools": [TOOL], "tool_choice": "required", "include": ["message.output_text.logprobs"]}
    asked = chat(USER, CALLED, RESULT, TRIGGER, text={"format": {"type": "json_object"}}, **fields)
    assert asked["messages"][-1] == {"role": "user", "content": ASK}
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "tool", "user"]
    assert (len(asked["tools"]), asked["tool_choice"]) == (1, "none")
    assert not {"response_format", "logprobs"} & asked.keys()
    assert "tool_choice" not in chat(USER, TRIGGER), "many servers refuse it without tools"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_answer_is_one_item_with_the_summary(is_stream: bool) -> None:
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    reply = await backend.open(Call("responses", "m", body(USER, TRIGGER, stream=is_stream), is_stream, "r1"))
    sent = b"".join([chunk.payload async for chunk in reply])
    await reply.aclose()
    events = [json.loads(data) for data in SseParser().receive(sent)] if is_stream else [{"response": json.loads(sent)}]
    [item] = events[-1]["response"]["output"]
    assert (item["type"], item["id"], unsealed(item["encrypted_content"])) == (
        "compaction", "cmp_resp_r1", "Hello, world.",
    )  # fmt: skip
    if is_stream:
        kinds = ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
        assert [event["type"] for event in events] == [f"response.{kind}" for kind in kinds]
        assert [event["sequence_number"] for event in events] == list(range(5))
        assert events[3]["item"] == item


@pytest.mark.parametrize("outcome", [Outcome(pieces=()), Outcome(pieces=("\n",)), Outcome(finish_reason="length")])
async def test_an_answer_without_a_whole_summary_compacts_nothing(outcome: Outcome) -> None:
    for is_stream in (False, True):
        backend = TranslatingBackend(ScriptedBackend("one", follow([outcome])))
        reply = await backend.open(Call("responses", "m", body(USER, TRIGGER, stream=is_stream), is_stream, "r1"))
        sent = b"".join([chunk.payload async for chunk in reply])
        await reply.aclose()
        assert b'"output":[]' in sent
        assert b"output_item" not in sent


def test_what_a_model_says_before_it_calls_in_spite_of_all_is_no_summary() -> None:
    head = ResponseHead("resp_1", 0, {"input": [USER, TRIGGER]})
    said = {"content": "Let me look.", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "tide"}}]}
    whole = json.dumps({"choices": [{"message": said, "finish_reason": "tool_calls"}]}).encode()
    assert json.loads(response_from_answer(whole, None, head, now=0.0))["output"] == []
    writer = ResponsesEventWriter(head, now=lambda: 0.0)
    writer.write(Chunk(b"data: " + json.dumps({"choices": [{"delta": said}]}).encode()))
    assert b'"output":[]' in writer.write(Chunk(b"", finish_reason="stop", is_done=True))


def test_a_later_request_has_the_summary_as_a_message_after_what_is_kept() -> None:
    summary = {"role": "user", "content": LEAD + "Wir segeln. ⛵"}
    older = compaction_item("resp_0", "Older.")
    given = body(SYSTEM, USER, SAID, THEIRS, older, CALLED, RESULT, TRIGGER, OURS, SAID, USER, stream=True)
    assert has_summary(given)
    made = json.loads(body_with_summary(given))
    assert made == {"model": "m", "input": [SYSTEM, USER, summary, SAID, USER], "stream": True}
    assert json.loads(body_with_summary(body(OURS)))["input"] == [summary]


def test_a_trigger_of_an_earlier_turn_is_left_out() -> None:
    """OpenAI takes it only as the last item, and a kept conversation has it where it was."""
    given = body(USER, TRIGGER, THEIRS, USER, TRIGGER)
    assert has_summary(given)
    assert json.loads(body_with_summary(given))["input"] == [USER, THEIRS, USER, TRIGGER]


@pytest.mark.parametrize(
    "given",
    [
        body(USER, THEIRS),
        body(USER, TRIGGER),
        body(USER, {"type": "reasoning", "encrypted_content": OURS["encrypted_content"]}, THEIRS),
        body({**OURS, "encrypted_content": "breakeven:QQ"}),
        b'{"input": "\\"compaction\\" \\"breakeven:"}',
        b'{"input": {"type": "compaction", "encrypted_content": "breakeven:QQ=="}}',
        b'["compaction", "breakeven:"]',
        b'{"input": [], "input": [{"type": "compaction", "encrypted_content": "breakeven:QQ=="}]}',
    ],
)
def test_what_is_none_of_ours_stays(given: bytes) -> None:
    assert body_with_summary(given) == given
