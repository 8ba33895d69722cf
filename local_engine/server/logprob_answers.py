"""Log-probabilities in wire formats: OpenAI's two and vLLM's `prompt_logprobs`. Knows no engine."""

from collections.abc import Sequence
from typing import Any, Literal

from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.text.prompts import Prompt
from local_engine.text.text_offsets import TextOffsets
from local_engine.text.tokenizer import Tokenizer

Kind = Literal["chat", "text"]


class LogprobWire:
    """One answer's log-probabilities as its tokens come; `at` is where the answer begins in its choice's text.

    `by_id` writes tokens as `token_id:5`, as vLLM does, to distinguish tokens with equal text.
    """

    def __init__(
        self, kind: Kind, tokenizer: Tokenizer, *, at: int = 0, shows_special: bool = False, by_id: bool = False
    ) -> None:
        self._kind = kind
        self._names_by_id = by_id
        self._tokenizer = tokenizer
        self._offsets = TextOffsets(tokenizer, at=at, shows_special=shows_special)

    def push(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        """The next drawn tokens; None if there are none, or none were requested."""
        if not entries:
            return None
        if self._kind == "chat":
            return {"content": [self._chat_entry(entry) for entry in entries], "refusal": None}
        return {
            "tokens": [self._text(entry.token_id) for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [self._likeliest(entry, len(entry.top)) for entry in entries],
            "text_offset": [self._offsets.push(entry.token_id) for entry in entries],
        }

    def of_echo(self, prompt: Prompt, entries: Sequence[TokenLogprobs], top: int) -> dict[str, Any]:
        """The prompt's own tokens, in a completion that echoes them; nothing precedes the first one to predict it."""
        return {
            "tokens": [self._text(token) for token in prompt.token_ids],
            "token_logprobs": [None, *(entry.logprob for entry in entries)],
            "top_logprobs": [None, *(self._likeliest(entry, top) for entry in entries)],
            "text_offset": list(prompt.offsets),
        }

    def of_prompt(self, entries: Sequence[TokenLogprobs], top: int) -> list[dict[str, Any] | None]:
        """vLLM's `prompt_logprobs`: every token but the first, and the most likely ones at its position, by id."""
        return [None, *(self._by_id(entry, top) for entry in entries)]

    def _likeliest(self, entry: TokenLogprobs, top: int) -> dict[str, float]:
        """By text, the token itself first. Of several tokens with one text the most likely counts."""
        told = {self._text(entry.token_id): entry.logprob}
        for token_id, logprob in entry.top[:top]:
            text = self._text(token_id)
            told[text] = max(logprob, told.get(text, logprob))
        return told

    def _by_id(self, entry: TokenLogprobs, top: int) -> dict[str, Any]:
        ranked = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top[:top], 1)]
        return {
            str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": self._text(token_id)}
            for token_id, logprob, rank in (*ranked, (entry.token_id, entry.logprob, entry.rank))
        }

    def _chat_entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        top = [self._chat_token(token_id, value) for token_id, value in entry.top]
        return self._chat_token(entry.token_id, entry.logprob) | {"top_logprobs": top}

    def _chat_token(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.bytes_of(token_id, skips_special=False)
        return {"token": self._text(token_id), "logprob": logprob, "bytes": list(raw)}

    def _text(self, token_id: int) -> str:
        if self._names_by_id:
            return f"token_id:{token_id}"
        return self._tokenizer.bytes_of(token_id, skips_special=False).decode(errors="replace")


def joined(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """An echo's log-probabilities, then its answer's."""
    if first is None or second is None:
        return first or second
    return {name: first[name] + second[name] for name in first}
