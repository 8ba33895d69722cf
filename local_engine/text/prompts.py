"""A completion's prompts: texts or token ids, truncation, and echoes. Knows no sampling."""

from dataclasses import dataclass, replace

from local_engine.errors import InvalidRequest
from local_engine.text.text_offsets import TextOffsets
from local_engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is what an echo shows, `offsets` where each token begins in it; both are needed only for echoes."""

    token_ids: list[int]
    text: str = ""
    offsets: tuple[int, ...] = ()

    def last(self, count: int) -> "Prompt":
        """Keeps only the last `count` tokens; the text stays whole."""
        return replace(self, token_ids=self.token_ids[-count:], offsets=self.offsets[-count:])


def read_prompts(
    prompt: str | list[str | int | list[int]],
    tokenizer: Tokenizer,
    *,
    vocabulary_size: int,
    with_bos: bool,
    shows_special: bool,
    echoes: bool,
    within: int | None,
) -> list[Prompt]:
    """One text or one list of ids is one prompt; a list of them is several. Raises InvalidRequest."""

    def read(one: str | list[int]) -> Prompt:
        if isinstance(one, str):
            tokenizer.refuse_longer(one, within, "prompt")
        if not echoes:
            ids = tokenizer.encode(one, with_bos=with_bos) if isinstance(one, str) else one
            check_ids(ids, vocabulary_size, "prompt")
            return Prompt(ids)
        if isinstance(one, str):
            ids, offsets = tokenizer.encode_with_offsets(one, with_bos=with_bos)
            check_ids(ids, vocabulary_size, "prompt")
            return Prompt(ids, one, tuple(offsets))
        check_ids(one, vocabulary_size, "prompt")
        along = TextOffsets(tokenizer, shows_special=shows_special)
        return Prompt(one, tokenizer.decode(one, skips_special=not shows_special), tuple(map(along.push, one)))

    if isinstance(prompt, str):
        return [read(prompt)]
    ids = [token for token in prompt if isinstance(token, int)]
    several = [entry for entry in prompt if not isinstance(entry, int)]
    if (ids and several) or not prompt:
        raise InvalidRequest(
            "prompt is a text, a list of token ids, or a list of such prompts; never empty, never mixed.",
            parameter="prompt",
        )
    return [read(one) for one in several or [ids]]


def check_ids(ids: list[int], known: int, parameter: str) -> None:
    """A token without an embedding would fail the step of every request in it. Raises InvalidRequest."""
    if not ids:
        raise InvalidRequest("The prompt is empty.", parameter=parameter)
    if not 0 <= min(ids) <= max(ids) < known:
        wrong = max(ids) if max(ids) >= known else min(ids)
        message = f"Token {wrong} is out of this model's vocabulary of {known} tokens."
        raise InvalidRequest(message, parameter=parameter)


def truncated(prompt: Prompt, keep: int | None, room: int) -> Prompt:
    """The prompt's last `keep` tokens; -1 keeps as many as leave room for the answer."""
    if keep is None:
        return prompt
    if keep == 0:
        raise InvalidRequest("truncate_prompt_tokens is at least 1, or -1.", parameter="truncate_prompt_tokens")
    return prompt.last(keep if keep > 0 else room)
