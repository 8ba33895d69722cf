"""The engine's sampler on a GPU: one launch for the whole batch, and one copy of its token ids to the host."""

from dataclasses import dataclass

import torch

from local_engine.kernels.batch_draw import BatchDraw
from local_engine.request import Request
from local_engine.sampler import Drawn, Sampler, change_logits, leaves_logits, token_logprobs
from local_engine.transfer import Arriving, fetch


@dataclass(frozen=True, slots=True)
class DeviceDraw:
    """A batch's draw under way; `ids` holds len(drafts) + 1 tokens for each request, in order.

    Log-probabilities are read from `logits` by `wait`: where they are wanted, no step may be begun before that.
    """

    requests: list[Request]
    logits: torch.Tensor
    ids: torch.Tensor
    arriving: Arriving

    def wait(self) -> list[Drawn]:
        """What each request got; what follows a wrong draft is dropped."""
        ids, start = self.arriving.wait(), 0
        drawn: list[Drawn] = []
        for request in self.requests:
            end = start + len(request.draft_token_ids) + 1
            drawn.append(_drawn(self.logits[start:end], ids[start:end], request))
            start = end
        return drawn


class DeviceSampler(Sampler):
    """Draws what `Sampler` draws in distribution; a seed means other tokens than it does on a CPU.

    A batch with a constrained answer in it is left to `Sampler`: its mask needs the host after every token.
    """

    _batch_draw: BatchDraw | None = None

    def draw(self, logits: torch.Tensor, requests: list[Request]) -> list[Drawn]:
        """`logits` holds len(drafts) + 1 rows for each request, in order."""
        return self.constrained(logits, requests) or self.begin(logits, requests).wait()

    def constrained(self, logits: torch.Tensor, requests: list[Request]) -> list[Drawn] | None:
        """The draw of a batch with a constrained answer in it; None for any other batch."""
        is_constrained = any(request.params.constraint is not None for request in requests)
        return super().draw(logits, requests) if is_constrained else None

    def begin(self, logits: torch.Tensor, requests: list[Request]) -> DeviceDraw:
        """Draw every row as if the drafts before it were right, without waiting."""
        owners = [(request, at) for request in requests for at in range(len(request.draft_token_ids) + 1)]
        ids = self._batch.draw(_changed(logits, owners), owners)
        return DeviceDraw(requests, logits, ids, fetch(ids))

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a finished request."""
        super().forget(request_id)
        self._batch.forget(request_id)

    @property
    def _batch(self) -> BatchDraw:
        """Made at the first draw, so that this class is constructed as its parent is."""
        if self._batch_draw is None:
            self._batch_draw = BatchDraw(self._device)
        return self._batch_draw


def accepted(ids: list[int], drafts: list[int]) -> list[int]:
    """Tokens up to and with the first that is not its draft; if all were right, also the one after them."""
    for at, draft in enumerate(drafts):
        if ids[at] != draft:
            return ids[: at + 1]
    return ids


def _drawn(logits: torch.Tensor, ids: list[int], request: Request) -> Drawn:
    taken, wanted = accepted(ids, request.draft_token_ids), request.params.logprobs
    if wanted is None:
        return Drawn(taken, [])
    return Drawn(taken, [token_logprobs(row, token, wanted) for row, token in zip(logits, taken, strict=False)])


def _changed(logits: torch.Tensor, owners: list[tuple[Request, int]]) -> torch.Tensor:
    """The rows after penalties, bias and bans; a copy if there are any, because log-probabilities want them raw."""
    out = logits
    for index, (request, at) in enumerate(owners):
        if leaves_logits(request, at):
            continue
        out = logits.clone() if out is logits else out
        out[index] = change_logits(logits[index], request, request.draft_token_ids[:at])
    return out
