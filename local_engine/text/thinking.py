"""Separates a model's thoughts from its answer: Qwen3, SmolLM3 and DeepSeek's distillations write thoughts between
tags. Granite also writes its answer between tags, which are removed.

A template that wants thoughts may write the opening tag itself, so that the answer begins inside. Qwen3's thinking
models sometimes omit the closing tag before a call: calls that end unclosed thoughts are the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from local_engine.text.answer_text import overlap
from local_engine.text.ending_calls import EndingCalls
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_calls import ToolCallParser
from local_engine.text.tool_marks import SAID, SAYS, THINKS, THOUGHT

_TAIL_TOKENS: Final = 16
"""An opening tag at a prompt's end is within these, even if it is several tokens."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """For a model that may think. `is_open`: the prompt ended within thoughts; `is_over`: after them, as when none are
    wanted. `tags_answers`: it also writes tags around its answer. `is_begun`: the prompt has thoughts to continue."""

    is_open: bool
    is_over: bool = False
    tags_answers: bool = False
    is_begun: bool = False

    def tokens_of(self, ids: Sequence[int], tokenizer: Tokenizer) -> int:
        """How many of an answer's tokens are thoughts, including their tags."""
        begins = next((number for number, one in enumerate(ids) if tokenizer.bytes_of(one).strip()), None)
        if not self.is_open and (begins is None or ids[begins] != tokenizer.id_of(THINKS)):
            return 0
        end = tokenizer.id_of(THOUGHT)
        return next((number + 1 for number, one in enumerate(ids) if one == end), len(ids))


def thinking_of(prompt: Sequence[int], tokenizer: Tokenizer, continued: str = "") -> Thinking | None:
    """None for a model whose template has no thoughts. `continued` is the message that the answer continues."""
    if THOUGHT not in (tokenizer.chat_template or ""):
        return None
    tail = tokenizer.decode(prompt[-_TAIL_TOKENS:]).rstrip()
    begins = continued.rfind(THINKS)
    is_within = begins > continued.rfind(THOUGHT)
    is_begun = is_within and bool(continued[begins + len(THINKS) :].strip())
    return Thinking(
        is_open=is_within or tail.endswith(THINKS),
        is_over=tail.endswith(THOUGHT) or (bool(continued.strip()) and not is_within),
        tags_answers=SAID in (tokenizer.chat_template or ""),
        is_begun=is_begun,
    )


class _Place(Enum):
    BEGINS = auto()
    THINKS = auto()
    THOUGHT = auto()
    """Between the closing tag and the first word."""
    SAYS = auto()


class ThinkingSplit:
    """Separates one answer's thoughts from its text, dropping blanks around both."""

    def __init__(self, thinking: Thinking, new_parser: Callable[[], ToolCallParser] | None = None) -> None:
        """`new_parser` creates a parser of calls, for an answer that may have some."""
        self._calls = None if new_parser is None else EndingCalls(new_parser)
        # Blanks at the end of the thoughts so far.
        self._blanks = ""
        self._is_open = thinking.is_open
        self._tags_answers = thinking.tags_answers
        self._place = _Place.BEGINS
        self._held = ""
        self._has_thought = thinking.is_begun
        # Whether the answer began with a tag.
        self._is_tagged = False

    def push(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """Thoughts and text that have become certain."""
        self._held += text
        if self._place is _Place.BEGINS:
            self._begin(is_last=is_last)
        thought = self._think(is_last=is_last) if self._place is _Place.THINKS else ""
        if self._place is _Place.THOUGHT:
            self._held = self._held.lstrip()
            self._place = _Place.SAYS if self._held else _Place.THOUGHT
            if self._tags_answers and self._held and not self._is_tagged:
                self._begin_answer(is_last=is_last)
        return thought, self._say(is_last=is_last) if self._place is _Place.SAYS else ""

    def _begin(self, *, is_last: bool) -> None:
        """A model may repeat the tag that its template wrote."""
        begun = self._held.lstrip()
        if begun.startswith(THINKS):
            self._place, self._held = _Place.THINKS, begun.removeprefix(THINKS)
        elif is_last or not THINKS.startswith(begun):
            self._place = _Place.THINKS if self._is_open else _Place.SAYS

    def _begin_answer(self, *, is_last: bool) -> None:
        if self._held.startswith(SAYS):
            self._held = self._held.removeprefix(SAYS).lstrip()
            self._is_tagged = True
            self._place = _Place.SAYS if self._held else _Place.THOUGHT
        elif SAYS.startswith(self._held) and not is_last:
            self._place = _Place.THOUGHT

    def _say(self, *, is_last: bool) -> str:
        """What is certain, without the tag that closes a tagged answer."""
        before, _, after = self._held.partition(SAID) if self._is_tagged else (self._held, "", "")
        text = before + after
        end = len(text) - (overlap(text, SAID) if self._is_tagged and not is_last else 0)
        self._held = text[end:]
        return text[:end]

    def _think(self, *, is_last: bool) -> str:
        before, found, after = self._held.partition(THOUGHT)
        end = len(before) if found or is_last else len(before) - overlap(before, THOUGHT)
        text, self._held = before[:end], after if found else before[end:]
        if self._calls is not None:
            text, calls = self._calls.push(text, is_last=is_last and not found)
            if found:
                text += self._calls.close()
            elif calls:
                self._place, self._held = _Place.SAYS, calls
        if found:
            self._place = _Place.THOUGHT
        text = self._blanks + text if self._has_thought else text.lstrip()
        thought = text.rstrip()
        self._has_thought = self._has_thought or bool(thought)
        self._blanks = text[len(thought) :]
        return thought
