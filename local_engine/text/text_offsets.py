"""Where in a text each of its tokens begins, in characters. Knows tokens' bytes; no wire, no engine.

A token that begins within a character stands where that character does.
"""

import codecs

from local_engine.text.tokenizer import Tokenizer

CONTINUATION_BYTES = range(0x80, 0xC0)


class TextOffsets:
    """Counts along a text of tokens that come one by one; `at` is how many characters stand before it."""

    def __init__(self, tokenizer: Tokenizer, *, at: int = 0, shows_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skips_special = not shows_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = at

    def push(self, token_id: int) -> int:
        """Where the next token begins."""
        piece = self._tokenizer.bytes_of(token_id, skips_special=self._skips_special)
        is_within, _ = self._decoder.getstate()
        # What does not go on with a character that was begun leaves a replacement for that behind.
        breaks_off = bool(is_within and piece) and piece[0] not in CONTINUATION_BYTES
        begins = self._at + breaks_off
        self._at += len(self._decoder.decode(piece))
        return begins
