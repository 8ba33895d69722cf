"""Text to token ids and back: vocabulary, chat template, and a detokenizer that never emits partial characters."""

import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.errors import ContextLengthExceeded
from local_engine.text.bounded_template import BoundedTemplate
from local_engine.text.chat_template import ChatTemplate
from local_engine.text.tool_formats import tool_format_of
from local_engine.text.tool_marks import SHOWN_TOKENS
from local_engine.text.user_markup import UserMarkup, cut_into_tokens, encoded_ids

# Maximum ratio of a character's bytes before and after normalisation.
MOST_NORMALISED = 4
# Twice the largest known vocabularies: a larger id means a damaged file, and a list up to it would take gigabytes.
MOST_IDS = 1 << 21
# A text's bytes, or so many for each token of a window if that is more. Each may be a token, which takes 300 bytes.
MOST_BYTES = 1 << 21
BYTES_A_TOKEN = 8


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable substitutes for bytes: printable Latin-1 is itself, the rest follows from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


class Tokenizer:
    """One model's vocabulary. Thread-safe: encoding holds no state."""

    def __init__(
        self,
        fast: FastTokenizer,
        *,
        chat_template: str | None,
        bos_token_id: int | None,
        eos_token_ids: Sequence[int],
        adds_bos: bool = False,
        tool_template: str | None = None,
    ) -> None:
        self.fast = fast
        self.bos_token_id = bos_token_id
        self.eos_token_ids = frozenset(eos_token_ids)
        self._adds_bos = adds_bos and bos_token_id is not None
        self.special_token_ids = frozenset(
            i
            for i, token in fast.get_added_tokens_decoder().items()
            if token.special and token.content not in SHOWN_TOKENS
        )
        self.marks = {
            token.content: i for i, token in fast.get_added_tokens_decoder().items() if token.content in SHOWN_TOKENS
        }
        """Marks that are single tokens, and their ids."""
        self.token_bytes = _all_token_bytes(fast)
        self._bytes_a_token = max(map(len, self.token_bytes), default=1) * (MOST_NORMALISED if fast.normalizer else 1)
        self._uncounted = _uncounted(fast, self.token_bytes)
        # Chat templates name the first end token.
        self.names = {"bos_token": self._name(bos_token_id), "eos_token": self._name(next(iter(eos_token_ids), None))}
        self.chat_template = chat_template
        self.tool_format = tool_format_of(f"{chat_template}{tool_template}", lambda mark: self.id_of(mark) is not None)
        """The model's tool call format."""
        self._compiled = ChatTemplate(chat_template, tool_template, self.names, self.tool_format)
        self._template: ChatTemplate | BoundedTemplate = self._compiled
        self._markup = UserMarkup(fast)
        encoded_ids(fast, "a")  # starts the library's threads: if that fails later, it fails for good

    def bound_template(self) -> BoundedTemplate:
        """Renders in another process from now on, which the caller must close."""
        self._template = BoundedTemplate(self._compiled)
        return self._template

    @property
    def vocabulary_size(self) -> int:
        """Ids of the tokenizer are below this; the model's logits may have more."""
        return len(self.token_bytes)

    def encode(self, text: str, *, with_bos: bool = True) -> list[int]:
        """Token ids of `text`; markup such as `<|im_start|>` becomes its special token."""
        return self._with_bos(encoded_ids(self.fast, text), with_bos=with_bos)

    def refuse_longer(self, text: str, within: int | None, parameter: str) -> None:
        """Raises ContextLengthExceeded for a text that is too long however it is tokenized, or would fit only if its
        tokens were unusually long: tokenizing takes hundreds of bytes per token, gigabytes for what does not fit."""
        if within is not None:
            if len(text) <= within:
                return
            # Blanks may be merged into neighbouring tokens.
            counted = "".join(text.split()).encode(errors="replace").translate(None, self._uncounted)
            least = len(counted) // self._bytes_a_token
            if least > within:
                message = f"The prompt is too long for this model's {within} tokens: it has at least {least}."
                raise ContextLengthExceeded(message, parameter=parameter)
        size, most = len(text.encode(errors="replace")), max(MOST_BYTES, BYTES_A_TOKEN * (within or 0))
        if size > most:
            message = f"The text has {size} bytes; at most {most} are cut into tokens."
            raise ContextLengthExceeded(message, parameter=parameter)

    def encode_with_offsets(self, text: str, *, with_bos: bool = True) -> tuple[list[int], list[int]]:
        """Token ids of `text`, and the character offset of each; an added BOS has the first one's."""
        with cut_into_tokens(len(text)):
            [encoded] = self.fast.encode_batch([text], add_special_tokens=False)
        begins: list[int] = []
        before = 0
        for start, end in encoded.offsets:
            # Several tokens of one character begin where it does; a blank omitted from a token's span belongs to it.
            begins.append(min(start, before))
            before = end
        ids = self._with_bos(encoded.ids, with_bos=with_bos)
        return ids, [0] * (len(ids) - len(begins)) + begins

    def decode(self, ids: Sequence[int], *, skips_special: bool = True) -> str:
        """Text of `ids`, with U+FFFD for invalid UTF-8."""
        return b"".join(self.bytes_of(i, skips_special=skips_special) for i in ids).decode("utf-8", errors="replace")

    def id_of(self, token: str) -> int | None:
        """The id of the token with this text, None if there is none."""
        return self.fast.token_to_id(token)

    def bytes_of(self, token_id: int, *, skips_special: bool = True) -> bytes:
        """The token's bytes; empty for special tokens unless requested, and for padding ids beyond the vocabulary."""
        if token_id >= len(self.token_bytes) or (skips_special and token_id in self.special_token_ids):
            return b""
        return self.token_bytes[token_id]

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The rendered chat; raises InvalidRequest if the template refuses. `extra` are additional template
        variables."""
        return self._markup.unmark(self._rendered(messages, tools, extra))

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        with_bos: bool = True,
        within: int | None = None,
    ) -> list[int]:
        """Token ids of a rendered conversation; markup inside messages stays text.

        A BOS written by the template is not doubled. Raises as `refuse_longer`.
        """
        text = self._rendered(messages, tools, extra)
        self.refuse_longer(self._markup.unmark(text), within, "messages")
        ids = self._with_bos(self._markup.encode(text), with_bos=with_bos)
        if self._adds_bos and with_bos and len(ids) > 1 and ids[0] == ids[1] == self.bos_token_id:
            return ids[1:]
        return ids

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any] | None,
    ) -> str:
        """Contains `UserMarkup`'s marks for text that only looks like a special token."""
        marked = [self._markup.mark(message) for message in messages]
        text = self._template.render(marked, tools=tools and self._markup.mark(list(tools)), extra=extra)
        # A call's arguments may contain a lone surrogate, which has no token.
        return text.encode(errors="backslashreplace").decode()

    def _with_bos(self, ids: list[int], *, with_bos: bool) -> list[int]:
        return [self.bos_token_id, *ids] if with_bos and self._adds_bos and self.bos_token_id is not None else ids

    def _name(self, token_id: int | None) -> str:
        return "" if token_id is None else str(self.fast.id_to_token(token_id))


class IncrementalDetokenizer:
    """Turns token ids into text as they come; bytes of an incomplete character wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, *, shows_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skips_special = not shows_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that became certain with this token."""
        return self._decoder.decode(self._tokenizer.bytes_of(token_id, skips_special=self._skips_special))

    def finish(self) -> str:
        """The rest: U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", final=True)


def _uncounted(fast: FastTokenizer, token_bytes: Sequence[bytes]) -> bytes:
    """Bytes without a token of their own: any number of them may become one unknown token, or none."""
    kept = {token[0] for token in token_bytes if len(token) == 1} if isinstance(fast.model, BPE) else set[int]()
    return bytes(byte for byte in range(256) if byte not in kept)


def _all_token_bytes(fast: FastTokenizer) -> list[bytes]:
    """Every id's bytes: via the byte alphabet for byte-level vocabularies, otherwise as SentencePiece writes them.

    Unused ids are empty. Raises ValueError for ids beyond any plausible vocabulary.
    """
    added = fast.get_added_tokens_decoder()
    alphabet = byte_alphabet()
    size = 1 + max(fast.get_vocab(with_added_tokens=True).values(), default=-1)
    if size > MOST_IDS:
        raise ValueError(f"a token has the id {size - 1}, and vocabularies end below {MOST_IDS}")
    is_byte_level = "ByteLevel" in str(json.loads(fast.to_str()).get("decoder"))
    pieces: list[bytes] = []
    for token_id in range(size):
        token = fast.id_to_token(token_id) or ""
        if token_id in added:
            pieces.append(token.encode())
        elif is_byte_level:
            pieces.append(bytes(alphabet[c] for c in token) if all(c in alphabet for c in token) else token.encode())
        elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            pieces.append(bytes([int(token[3:5], 16)]))
        else:
            pieces.append(token.replace("\u2581", " ").encode())
    return pieces
