"""A model small enough to reason about: the next token depends on all before it, through the paged cache."""

import torch

from local_engine.request import Request
from local_engine.sampling_params import SamplingParams
from local_engine.scheduler import Batch

VOCABULARY = 97


class SlotRunner:
    """Writes every token into its slot and draws from what the block table then shows.

    A wrong block table, a block given to two requests, a wrong position or a stale prefix changes the next token.
    """

    device = torch.device("cpu")

    def __init__(self, blocks: int, block_size: int) -> None:
        self._slots = [-1] * (blocks * block_size)
        self._block_size = block_size

    def run(self, batch: Batch) -> torch.Tensor:
        for row in batch.rows:
            tokens = (row.request.token_ids + row.request.draft_token_ids)[row.start : row.start + row.count]
            for position, token in enumerate(tokens, row.start):
                self._slots[self._slot(row.request, position)] = token
        logits: list[torch.Tensor] = []
        for row in batch.rows:
            if row.needs_logits:
                end = row.start + row.count
                logits += [self._logits(row.request, upto) for upto in range(end - row.drafts, end + 1)]
        return torch.stack(logits) if logits else torch.empty(0, VOCABULARY)

    def _slot(self, request: Request, position: int) -> int:
        block = request.block_ids[position // self._block_size]
        return block * self._block_size + position % self._block_size

    def _logits(self, request: Request, upto: int) -> torch.Tensor:
        seen = [self._slots[self._slot(request, position)] for position in range(upto)]
        logits = torch.zeros(VOCABULARY)
        logits[next_token(seen)] = 10.0
        return logits


def next_token(tokens: list[int]) -> int:
    """A rolling hash of the whole history, with a short cycle now and then so that drafts can match."""
    if len(tokens) % 7 < 4 and len(tokens) > 3:
        return tokens[-3]
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def expected_answer(prompt: list[int], count: int) -> list[int]:
    """What an engine of any configuration must say."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def make_request(name: str, prompt: list[int], **changes: object) -> Request:
    """A greedy request; keyword arguments go to its sampling parameters."""
    params: dict[str, object] = {"temperature": 0.0, "max_tokens": 8} | changes
    return Request(name, prompt, SamplingParams(**params))  # pyright: ignore[reportArgumentType]
