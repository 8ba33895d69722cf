"""Character offsets of tokens in their text. Knows tokens' bytes; no wire format, no engine.

A token that begins within a character has that character's offset.
"""

import codecs

from local_engine.text.tokenizer import Tokenizer

CONTINUATION_BYTES = range(0x80, 0xC0)


class TextOffsets:
    """Tracks the text of successive tokens; `at` is the number of characters before it."""

    def __init__(self, tokenizer: Tokenizer, *, at: int = 0, shows_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skips_special = not shows_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = at

    def push(self, token_id: int) -> int:
        """Offset of the next token."""
        piece = self._tokenizer.bytes_of(token_id, skips_special=self._skips_special)
        is_within, _ = self._decoder.getstate()
        # Bytes that do not continue a begun character leave a replacement character for it.
        breaks_off = bool(is_within and piece) and piece[0] not in CONTINUATION_BYTES
        begins = self._at + breaks_off
        self._at += len(self._decoder.decode(piece))
        return begins
