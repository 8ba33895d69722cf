"""Log-probabilities of a prompt's own tokens, from each chunk's hidden states. Knows no queue and no wire format.

Logits exist for a few positions at a time: those of a whole prompt would take more memory than the model's weights.
"""

from collections.abc import Callable

import torch

from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.scheduler import Row

POSITIONS_AT_ONCE = 128


def score_prompts(
    rows: tuple[Row, ...], hidden: torch.Tensor, logits_of: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Append to `Request.prompt_logprobs` the scores of the prompt tokens that follow the rows' positions.

    `hidden` contains the rows' states one after another; `logits_of` computes float32 logits of some of them.
    """
    first = 0
    for row in rows:
        wanted = row.request.params.prompt_logprobs
        positions = _unscored(row)
        if wanted is not None:
            for start in positions[::POSITIONS_AT_ONCE]:
                end = min(start + POSITIONS_AT_ONCE, positions.stop)
                states = hidden[first + start - row.start : first + end - row.start]
                following = row.request.prompt_token_ids[start + 1 : end + 1]
                row.request.prompt_logprobs += _score(logits_of(states), following, wanted)
        first += row.count


def _unscored(row: Row) -> range:
    """Positions of the row whose next token is a prompt token without a score.

    A preempted request computes some positions twice.
    """
    known, last = len(row.request.prompt_logprobs), row.request.prompt_tokens - 1
    return range(max(row.start, known), max(row.start, known, min(row.start + row.count, last)))


def _score(logits: torch.Tensor, token_ids: list[int], top: int) -> list[TokenLogprobs]:
    """One entry per row of logits, which predicts the token at the same index."""
    values = logits.log_softmax(dim=-1)
    chosen = values.gather(1, torch.tensor(token_ids, device=values.device)[:, None])
    ranks: list[int] = ((values > chosen).sum(dim=-1) + 1).tolist()
    likeliest = values.topk(top, dim=-1)
    best: list[list[float]] = likeliest.values.tolist()
    ids: list[list[int]] = likeliest.indices.tolist()
    own: list[float] = chosen[:, 0].tolist()
    return [
        TokenLogprobs(token, logprob, tuple(zip(row_ids, row_best, strict=True)), rank)
        for token, logprob, row_ids, row_best, rank in zip(token_ids, own, ids, best, ranks, strict=True)
    ]
