"""Thoughts found in text, whole and character by character, and counted in tokens."""

import pytest

from local_engine.text.thinking import Thinking, ThinkingSplit, thinking_of
from local_engine.text.tool_calls import ToolCallParser
from tests.unit.local_engine.text.thinking_template import tokenizer

CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
CASES = [
    (False, "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
    (False, "\n<think>a < b </thin </think>Yes. ", "a < b </thin", "Yes. "),
    (False, "<think>\n\n</think>\n\nYes.", "", "Yes."),
    (False, "<think>never ended ", "never ended", ""),
    (False, "<think>one</think>two<think>three</think>", "one", "two<think>three</think>"),
    (False, "Yes <think>no</think>", "", "Yes <think>no</think>"),
    (False, "<thin", "", "<thin"),
    (False, " \n", "", " \n"),
    (False, "", "", ""),
    (True, "\nHm,\n\nwell.\n</think>\n\nYes.", "Hm,\n\nwell.", "Yes."),
    (True, "<think>\nHm.</think>Yes.", "Hm.", "Yes."),
    (True, "never ended", "never ended", ""),
    (True, "", "", ""),
]


@pytest.mark.parametrize(("is_open", "text", "thought", "said"), CASES)
def test_thoughts_and_text(is_open: bool, text: str, thought: str, said: str) -> None:
    whole = ThinkingSplit(Thinking(is_open))
    assert whole.push(text, is_last=True) == (thought, said)
    for held_back in (False, True):  # the end may come with the last character or after it
        split, found = ThinkingSplit(Thinking(is_open)), ["", ""]
        parts = list(text) + [""] * (held_back or not text)
        for number, part in enumerate(parts):
            for place, piece in enumerate(split.push(part, is_last=number == len(parts) - 1)):
                found[place] += piece
        assert found == [thought, said]


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>Hm.</think><response>Yes.</response>", "Hm.", "Yes."),
        ("<think>Hm.</think>\n<response>\na <b> c</response>", "Hm.", "a <b> c"),
        ("<think>Hm.</think>Yes </response>", "Hm.", "Yes </response>"),
        ("<think>Hm.</think><respond", "Hm.", "<respond"),
        ("<think>Hm.</think><resp", "Hm.", "<resp"),
        ("<think>Hm.</think><response>a </resp", "Hm.", "a </resp"),
        ("Yes.", "", "Yes."),
    ],
)
def test_tags_around_what_is_said_are_left_out(text: str, thought: str, said: str) -> None:
    for step in (1, 4, len(text)):
        split, found = ThinkingSplit(Thinking(is_open=False, tags_answers=True)), ["", ""]
        for at in range(0, len(text), step):
            for place, piece in enumerate(split.push(text[at : at + step], is_last=at + step >= len(text))):
                found[place] += piece
        assert found == [thought, said]


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        (f"<think>Hm.\n{CALL}\n", "Hm.", f"{CALL}"),
        (f"<think>{CALL}\n{CALL}", "", f"{CALL}\n{CALL}"),
        (f"<think>Like <tool_call>x or {CALL}: so {CALL}", f"Like <tool_call>x or {CALL}: so", CALL),
        (f"<think>Like {CALL}.</think>\n{CALL}", f"Like {CALL}.", CALL),
        (f"<think>Hm. {CALL}</think>", f"Hm. {CALL}", ""),
        (f"<think>Hm. {CALL} No.", f"Hm. {CALL} No.", ""),
        (f"<think>Hm. {CALL[:-14]}", "Hm.", CALL[:-14]),
        ('<think>Hm. <tool_call>{"name": "f"', 'Hm. <tool_call>{"name": "f"', ""),
        ("<think>Hm. <tool_", "Hm. <tool_", ""),
        ("<think>a\n</thi <tool_call></thi", "a\n</thi <tool_call></thi", ""),
    ],
)
def test_calls_that_end_unclosed_thoughts_are_the_answer(text: str, thought: str, said: str) -> None:
    for step in (1, 2, 7, 100, len(text)):
        split, found = ThinkingSplit(Thinking(is_open=False), lambda: ToolCallParser({"f"})), ["", ""]
        for at in range(0, len(text), step):
            for place, piece in enumerate(split.push(text[at : at + step], is_last=at + step >= len(text))):
                found[place] += piece
        assert (found[0], found[1].strip()) == (thought, said)


def test_text_comes_as_soon_as_it_is_certain() -> None:
    split = ThinkingSplit(Thinking(is_open=True))
    assert split.push("I wonder", is_last=False) == ("I wonder", "")
    assert split.push(" \n</th", is_last=False) == ("", "")
    assert split.push("ere", is_last=False) == (" \n</there", "")
    assert split.push("</think>\n", is_last=False) == ("", "")
    assert split.push("So", is_last=False) == ("", "So")
    assert split.push("\n", is_last=False) == ("", "\n")


@pytest.mark.parametrize(
    ("question", "extra", "is_open", "is_over"),
    [
        ("What?", {}, False, False),
        ("What?", {"opens": True}, True, False),
        ("What?", {"enable_thinking": False}, False, True),
        ("<think>", {"enable_thinking": False}, False, True),
    ],
)
def test_whether_the_prompt_opened_the_thoughts_or_closed_them(
    question: str, extra: dict[str, bool], is_open: bool, is_over: bool
) -> None:
    reads = tokenizer()
    ids = reads.encode_chat([{"role": "user", "content": question}], extra=extra)
    assert thinking_of(ids, reads) == Thinking(is_open, is_over)


def test_a_model_whose_template_knows_no_thoughts_has_none() -> None:
    reads = tokenizer("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    assert thinking_of(reads.encode("Say <think>"), reads) is None


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.parametrize(
    ("is_open", "text", "tokens"),
    [
        (False, "<think>ab</think>cd", 4),
        (False, "\n<think>ab</think>cd", 5),
        (False, "<think>ab", 3),
        (False, "ab</think>cd", 0),
        (False, "", 0),
        (True, "ab</think>cd", 3),
        (True, "abcd", 4),
        (True, "", 0),
    ],
)
def test_thoughts_are_counted_with_their_tags(is_special: bool, is_open: bool, text: str, tokens: int) -> None:
    reads = tokenizer(is_special=is_special)
    ids = reads.encode(text, with_bos=False)
    assert Thinking(is_open).tokens_of(ids, reads) == tokens
    assert reads.decode(ids) == text, "tags are shown, special or not"
