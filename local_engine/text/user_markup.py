"""Keeps text that looks like a special token inside a message as text: writing a mark must not end a turn.

Knows a tokenizer's vocabulary; nothing of templates and requests.
"""

import re
import secrets
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final, cast

from tokenizers import Tokenizer as FastTokenizer

from local_engine.errors import InvalidRequest
from local_engine.text.panics import panics_told

# Texts with more characters are cut one at a time: one of two megabytes takes 0.6 GB meanwhile.
LONG: Final = 1 << 18
_ALONE: Final = threading.Lock()
# From the private use area, which no normaliser changes.
OPEN, CLOSE = "\ue000", "\ue001"


def encoded_ids(fast: FastTokenizer, text: str) -> list[int]:
    """A text's token ids, without added ones. Unlike the library's `encode`, lets other threads run."""
    with cut_into_tokens(len(text)):
        [encoded] = fast.encode_batch_fast([text], add_special_tokens=False)
    return encoded.ids


@contextmanager
def cut_into_tokens(characters: int) -> Generator[None]:
    """Raises InvalidRequest where the library gives up: eleven million blanks are too many for some expressions."""
    try:
        with _ALONE if characters > LONG else nullcontext(), panics_told():
            yield
    except ValueError as error:
        raise InvalidRequest(f"The text cannot be tokenized ({error}).") from error


class UserMarkup:
    """Marks special tokens in messages before a template is rendered, and encodes the rendered text.

    Without marks the tokenizer itself encodes. Otherwise the template's own special tokens are renamed, so that the
    marked ones, once spelt out again, are not tokens any more; all else in the tokenizer's path (normalising,
    splitting, merging) is unchanged.
    """

    def __init__(self, fast: FastTokenizer) -> None:
        self._fast = fast
        added = fast.get_added_tokens_decoder().values()
        self._special = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        # Only letters and digits, which templates leave unchanged.
        self._mark = secrets.token_hex(8)
        self._marked = re.compile(f"{self._mark}x([0-9]+)x")
        self._number_of = {token: number for number, token in enumerate(self._special)}
        self._renamed, self._meant = self._rename()

    def mark(self, value: Any) -> Any:
        """The same value with every special token inside its strings marked."""
        if isinstance(value, str):
            return self._pattern.sub(lambda found: f"{self._mark}x{self._number_of[found[0]]}x", value)
        if isinstance(value, list):
            return [self.mark(entry) for entry in cast(list[Any], value)]
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(entry) for key, entry in cast(Mapping[Any, Any], value).items()}
        return value

    def unmark(self, text: str) -> str:
        """Text with the marked tokens spelt out again."""
        return self._marked.sub(lambda found: self._special[int(found[1])], text)

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text, without added ones; marked tokens are text."""
        if self._mark not in text:
            return encoded_ids(self._fast, text)
        renamed = self._pattern.sub(lambda found: self._name(found[0]), text)
        ids = encoded_ids(self._renamed, self.unmark(renamed))
        return [own for token in ids for own in self._meant.get(token, (token,))]

    def _rename(self) -> tuple[FastTokenizer, dict[int, tuple[int, ...]]]:
        """The tokenizer with its special tokens renamed, and what its ids mean if not themselves.

        It shares the model, at no cost of time or memory. Names that the model lacks get ids beyond its last; a special
        token that the model itself produces from text stands for its characters.
        """
        model = self._fast.model
        known = self._fast.get_vocab(with_added_tokens=False)
        meant = {
            known[token]: tuple(piece.id for letter in token for piece in model.tokenize(letter))
            for token in self._special
            if token in known
        }
        other = FastTokenizer(model)
        if self._fast.normalizer is not None:
            other.normalizer = self._fast.normalizer
        if self._fast.pre_tokenizer is not None:
            other.pre_tokenizer = self._fast.pre_tokenizer
        # The library assigns ids by counting tokens instead of looking for the first free id.
        unused = range(max(known.values(), default=-1) + 1 - len(known))
        other.add_tokens([f"{OPEN}{self._mark}unused{number}{CLOSE}" for number in unused])
        added = self._fast.get_added_tokens_decoder()
        for token in added.values():
            token.content = self._name(token.content)
        other.add_tokens(list(added.values()))
        own = {token.content: number for number, token in added.items()}
        named = other.get_added_tokens_decoder().items()
        return other, meant | {number: (own[token.content],) for number, token in named if token.content in own}

    def _name(self, token: str) -> str:
        """A special token's other name; other tokens keep theirs."""
        number = self._number_of.get(token)
        # Random too, so that no message can spell it.
        return token if number is None else f"{OPEN}{self._mark}{number}{CLOSE}"
