"""Finds calls with which a model's thoughts end although no tag closed them. Knows no tags of thoughts."""

from collections.abc import Callable, Sequence
from typing import Final

from local_engine.text.answer_text import overlap
from local_engine.text.tool_calls import CallBegins, Piece, ToolCallParser
from local_engine.text.tool_marks import MARKS

# Characters parsed at a time: so many may be parsed again where no call follows a mark.
PIECE: Final = 16
# A complete answer is read in blocks: otherwise its remainder would be copied at every mark.
BLOCK: Final = 1024


class EndingCalls:
    """Withholds text from a mark on while nothing but calls follows it. Other text after them makes them thoughts."""

    def __init__(self, new_parser: Callable[[], ToolCallParser]) -> None:
        self._new_parser = new_parser
        self._held = ""
        self._parser: ToolCallParser | None = None
        self._parsed = 0
        self._has_call = False

    def push(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """Text that is certain to be thought; at the end also the calls, as text."""
        thought = ""
        for at in range(0, len(text), BLOCK):
            self._held += text[at : at + BLOCK]
            thought += self._advance(is_last=False)[0]
        rest, calls = self._advance(is_last=True) if is_last else ("", "")
        return thought + rest, calls

    def _advance(self, *, is_last: bool) -> tuple[str, str]:
        thought = ""
        while self._parser is not None or any(mark in self._held for mark in MARKS):
            if self._parser is None:
                at = min(self._held.find(mark) for mark in MARKS if mark in self._held)
                thought, self._held = thought + self._held[:at], self._held[at:]
                self._parser, self._parsed, self._has_call = self._new_parser(), 0, False
            if self._are_calls(self._parser, is_last=is_last):
                return thought, self._held if is_last else ""
            mark = next(mark for mark in MARKS if self._held.startswith(mark))
            end = max(len(mark), self._parsed - PIECE)
            thought, self._held, self._parser = thought + self._held[:end], self._held[end:], None
        end = len(self._held) - (0 if is_last else max(overlap(self._held, mark) for mark in MARKS))
        thought, self._held = thought + self._held[:end], self._held[end:]
        return thought, ""

    def close(self) -> str:
        """What was withheld, where the thoughts are closed after all."""
        held, self._held, self._parser = self._held, "", None
        return held

    def _are_calls(self, parser: ToolCallParser, *, is_last: bool) -> bool:
        """Whether what is held is nothing but calls, at the end at least one."""
        while self._parsed < len(self._held):
            piece = self._held[self._parsed : self._parsed + PIECE]
            self._parsed += len(piece)
            if not self._is_call_only(parser.push(piece)):
                return False
        return not is_last or (self._is_call_only(parser.finish()) and self._has_call)

    def _is_call_only(self, pieces: Sequence[Piece]) -> bool:
        self._has_call = self._has_call or any(isinstance(piece, CallBegins) for piece in pieces)
        return not any(isinstance(piece, str) and piece.strip() for piece in pieces)
