"""Keeps what reads like a special token inside a message the text that it is: nobody ends a turn by writing its mark.

Knows a tokenizer's vocabulary; nothing of templates and requests.
"""

import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from tokenizers import Tokenizer as FastTokenizer

from local_engine.errors import InvalidRequest
from local_engine.text.panics import panics_told

# Of the private use area, which no normaliser changes.
OPEN, CLOSE = "\ue000", "\ue001"


def encoded_ids(fast: FastTokenizer, text: str) -> list[int]:
    """A text's token ids, none added. Other threads run meanwhile, which the library's `encode` would not let them."""
    with cut_into_tokens():
        [encoded] = fast.encode_batch_fast([text], add_special_tokens=False)
    return encoded.ids


@contextmanager
def cut_into_tokens() -> Generator[None]:
    """Raise InvalidRequest where the library gives up: some expressions take eleven million blanks for too many."""
    try:
        with panics_told():
            yield
    except ValueError as error:
        raise InvalidRequest(f"The text cannot be cut into tokens ({error}).") from error


class UserMarkup:
    """Marks special tokens in messages before a template is rendered, and encodes its text afterwards.

    Where nothing was marked the tokenizer itself encodes. Else the template's own special tokens get other names, so
    that the marked ones, spelt out again, are no tokens any more: everything else of the tokenizer's path (normalising,
    splitting, merging) is as ever.
    """

    def __init__(self, fast: FastTokenizer) -> None:
        self._fast = fast
        added = fast.get_added_tokens_decoder().values()
        self._special = sorted((token.content for token in added if token.special), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        # Letters and digits alone, which templates leave as they are.
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
        """Token ids of a rendered text, none added; marked tokens are text."""
        if self._mark not in text:
            return encoded_ids(self._fast, text)
        renamed = self._pattern.sub(lambda found: self._name(found[0]), text)
        ids = encoded_ids(self._renamed, self.unmark(renamed))
        return [own for token in ids for own in self._meant.get(token, (token,))]

    def _rename(self) -> tuple[FastTokenizer, dict[int, tuple[int, ...]]]:
        """The tokenizer with its special tokens under other names, and what its ids mean where that is not themselves.

        It shares the model, which costs neither time nor memory. Names that the model lacks get ids beyond its last;
        a special token that the model makes of text by itself means its characters.
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
        # The library counts tokens where it should look for the first free id.
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
        """Another name for a special token, and any other token's own."""
        number = self._number_of.get(token)
        # Unforeseeable too, or a message could spell it.
        return token if number is None else f"{OPEN}{self._mark}{number}{CLOSE}"
