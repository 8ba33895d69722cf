"""Turns one answer's tokens into displayable text: whole characters only, and no part of a stop string."""

from local_engine.text.tokenizer import IncrementalDetokenizer, Tokenizer


class AnswerText:
    """Text is released as soon as it cannot be the beginning of a stop string; `includes_stop` keeps the stop string
    itself."""

    def __init__(
        self, tokenizer: Tokenizer, stop: tuple[str, ...], *, includes_stop: bool = False, shows_special: bool = False
    ) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, shows_special=shows_special)
        self._stop = stop
        self._includes_stop = includes_stop
        self._held = ""
        self.stopped_by: str | None = None
        """The stop string that ended the answer."""

    def push(self, token_id: int, *, may_stop: bool = True) -> str:
        """Text that became certain with this token; sets `stopped_by` when a stop string is complete and may end the
        answer."""
        return self._release(self._detokenizer.push(token_id), may_stop=may_stop)

    def finish(self) -> str:
        """The rest, if the answer ends without a stop string."""
        if self.stopped_by is not None:
            return ""
        text = self._release(self._detokenizer.finish()) + self._held
        self._held = ""
        return text

    def _release(self, text: str, *, may_stop: bool = True) -> str:
        if not self._stop:
            return text
        held, before = self._held + text, len(self._held)
        # One that ended before it could end the answer may still be held.
        begins = [(held.find(stop, max(0, before + 1 - len(stop))), stop) for stop in self._stop] if may_stop else []
        found = [(at, at + len(stop), stop) for at, stop in begins if at >= 0]
        if found:
            self._held = ""
            start, end, self.stopped_by = min(found)
            return held[: end if self._includes_stop else start]
        keep = max((overlap(held, stop) for stop in self._stop), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]


def overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
