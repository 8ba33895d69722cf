"""A chat's thoughts in answers, from an engine that generates what a test specifies."""

from typing import Any

import pytest

from local_engine.request import FinishReason
from local_engine.sampling.sampling_params import Constraint
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.asking import WEATHER
from tests.unit.local_engine.server.scripted_chats import answer, asked
from tests.unit.local_engine.text.thinking_template import TEMPLATE, tokenizer
from tests.unit.local_engine.tiny_models import byte_level

CALL = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'


async def test_thoughts_are_told_apart_and_counted() -> None:
    told, usage = await answer("<think>\nHm.\n</think>\n\nYes.")
    assert told["reasoning_content"] == "Hm."
    assert told["content"] == "Yes."
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 7}


@pytest.mark.parametrize("extra", [{"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}])
async def test_who_wants_no_thoughts_gets_none(extra: dict[str, Any]) -> None:
    reads = tokenizer()
    assert reads.decode(asked(reads, **extra).prompts[0].token_ids).endswith("<think>\n\n</think>\n\n")
    told, usage = await answer("Yes.", **extra)
    assert told["content"] == "Yes."
    assert "reasoning_content" not in told
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize(
    ("begun", "said", "thought", "content"),
    [
        ("<think>\nLet's", " see.\n</think>\n\nYes.", " see.", "Yes."),
        ("<think>\n", "\nHm.</think>Yes.", "Hm.", "Yes."),
        ("<think>Hm.</think>\n\nYe", "s.", None, "s."),
        ("Ye", "s </think>.", None, "s </think>."),
    ],
)
async def test_a_message_goes_on_within_its_thoughts_or_after_them(
    begun: str, said: str, thought: str | None, content: str
) -> None:
    """The rest of the thoughts used to be the answer's text, with their closing tag."""
    messages = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": begun}]
    told, _ = await answer(said, messages=messages, continue_final_message=True)
    assert (told.get("reasoning_content"), told["content"]) == (thought, content)


def test_what_must_match_begins_at_once_where_an_answer_goes_on() -> None:
    messages = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "<think>Hm.</think>It is "}]
    kept = asked(tokenizer(), messages=messages, continue_final_message=True, structured_outputs={"regex": "[0-9]+"})
    assert kept.choices[0].thoughts is None, "no thoughts may precede it any more"


async def test_thoughts_may_be_left_out_of_the_answer() -> None:
    """They used to be included whatever these fields of vLLM, OpenRouter and SGLang said."""
    told, usage = await answer("<think>Hm.</think>Yes.", include_reasoning=False)
    assert told["content"] == "Yes."
    assert "reasoning_content" not in told
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 5}
    told, _ = await answer("<think>Hm.</think>Yes.", separate_reasoning=False)
    assert told["content"] == "<think>Hm.</think>Yes."


async def test_an_answer_cut_within_its_thoughts_has_no_text() -> None:
    told, usage = await answer("Hm. Well.", chat_template_kwargs={"opens": True})
    assert told["reasoning_content"] == "Hm. Well."
    assert told["content"] == ""
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"] == 9


async def test_a_call_that_ends_unclosed_thoughts_is_found() -> None:
    """It used to be part of the thoughts, and an agent's turn ended without a call."""
    told, _ = await answer(f"<think>I look.\n{CALL}", tools=[WEATHER])
    assert (told["reasoning_content"], told["content"], told["finish_reason"]) == ("I look.", None, "tool_calls")
    told, _ = await answer(f"<think>I look.\n{CALL}")
    assert told["reasoning_content"] == f"I look.\n{CALL}"


async def test_calls_are_found_behind_thoughts_and_not_in_them() -> None:
    told, _ = await answer(f"<think>{CALL}?</think>\n{CALL}", tools=[WEATHER])
    assert told["reasoning_content"] == f"{CALL}?"
    assert [call["function"]["name"] for call in told["tool_calls"]] == ["weather"]
    assert told["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("said", "ends", "told"),
    [
        (CALL, "stop", "tool_calls"),
        (CALL, "length", "length"),
        (CALL.replace("{}}", '{"a": "b'), "length", "length"),
        (CALL.replace("{}}", '{"a": "b'), "stop", "stop"),
        (f"{CALL} So be it.", "length", "length"),
    ],
)
async def test_an_answer_that_was_cut_says_so_beside_its_calls(said: str, ends: FinishReason, told: str) -> None:
    """It used to end with `tool_calls` though the last call was incomplete; a stop string does not end a call."""
    message, _ = await answer(f"I look. {said}", tools=[WEATHER], ends=ends)
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather"]
    assert message["finish_reason"] == told
    assert message["content"].startswith("I look.")


async def test_a_mark_that_says_nothing_to_a_reader_is_no_text_of_the_whole_answer_either() -> None:
    told, _ = await answer("<|python_tag|>print(1)", tools=[WEATHER])
    assert told["content"] == "print(1)"


async def test_a_strict_tool_leaves_thoughts_whose_tags_are_no_tokens_told_apart() -> None:
    """No single token ends them, so no constraint could start after it; a free answer may contain both."""
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
    reads = Tokenizer(byte_level(), chat_template=TEMPLATE, bos_token_id=None, eos_token_ids=[257])
    told, _ = await answer("<think>Hm.</think>Yes.", reads=reads, tools=[strict])
    assert (told["reasoning_content"], told["content"]) == ("Hm.", "Yes.")


async def test_what_must_match_is_all_text_where_no_thoughts_are_wanted() -> None:
    told, usage = await answer(
        "<think>1</think>",
        chat_template_kwargs={"enable_thinking": False},
        structured_outputs={"regex": "<think>1</think>"},
    )
    assert told["content"] == "<think>1</think>"
    assert "completion_tokens_details" not in usage


async def test_an_answer_in_a_form_of_its_own_calls_no_tool() -> None:
    """An object with a name used to be reported as a call of the tool of that name."""
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object"}}}
    for said in ('{"name": "Bob", "age": 3}', '{"name": "weather"}', '{"a": "<function=weather></function>"}'):
        told, _ = await answer(said, tools=[WEATHER], response_format=form)
        assert (told["content"], told.get("tool_calls"), told["finish_reason"]) == (said, None, "stop")
    told, _ = await answer(CALL, tools=[WEATHER], response_format=form)
    assert told["finish_reason"] == "tool_calls", "it may call one instead"
    sources = [
        (asked(tokenizer(), response_format=form, **changes).choices[0].constraint or Constraint("regex", "")).source
        for changes in ({"tools": [WEATHER]}, {"tools": [WEATHER], "tool_choice": "none"}, {"tools": []}, {})
    ]
    assert ["calls" in source for source in sources] == [True, False, False, False]


@pytest.mark.parametrize("opens", [False, True])
async def test_what_must_match_follows_thoughts(opens: bool) -> None:
    """It used to begin at once, so the model answered without thinking."""
    said = "Hm.</think>\n\n12" if opens else "<think>Hm.</think>\n\n12"
    told, usage = await answer(said, chat_template_kwargs={"opens": opens}, structured_outputs={"regex": "[0-9]+"})
    assert (told["reasoning_content"], told["content"]) == ("Hm.", "12")
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4 if opens else 5}


async def test_a_model_that_knows_no_thoughts_says_its_tags() -> None:
    told, usage = await answer("<think>Hm.</think>", template="{{ messages[0]['content'] }}")
    assert told["content"] == "<think>Hm.</think>"
    assert "completion_tokens_details" not in usage
