"""The engine's sampler on a GPU: one launch for the whole batch, and one copy of its token ids to the host."""

from dataclasses import dataclass

import torch

from local_engine.kernels.batch_draw import BatchDraw
from local_engine.request import Request
from local_engine.sampling.constraints import Matcher
from local_engine.sampling.sampler import Drawn, Sampler, change_logits, leaves_logits, token_logprobs, within
from local_engine.transfer import Arriving, fetch


@dataclass(frozen=True, slots=True)
class DeviceDraw:
    """A batch's draw in progress; `ids` has len(drafts) + 1 tokens for each request, in order.

    `wait` reads log-probabilities from `logits` and passes tokens to matchers: if either is needed, no step may begin
    before that.
    """

    requests: list[Request]
    matchers: list[Matcher | None]
    logits: torch.Tensor
    ids: torch.Tensor
    arriving: Arriving

    def wait(self) -> list[Drawn]:
        """What each request got; tokens after a wrong draft are dropped."""
        ids, start = self.arriving.wait(), 0
        drawn: list[Drawn] = []
        for request, matcher in zip(self.requests, self.matchers, strict=True):
            end = start + len(request.draft_token_ids) + 1
            drawn.append(self._drawn(start, accepted(ids[start:end], request.draft_token_ids), request, matcher))
            start = end
        return drawn

    def _drawn(self, first: int, taken: list[int], request: Request, matcher: Matcher | None) -> Drawn:
        """What one request got, whose logits begin at row `first`; creates a row's view only if log-probabilities are
        wanted."""
        wanted = request.params.logprobs
        told = (
            []
            if wanted is None
            else [token_logprobs(self.logits[row], token, wanted) for row, token in enumerate(taken, first)]
        )
        if matcher is None:
            return Drawn(taken, told)
        for token in taken:
            matcher.consume(token)
        return Drawn(taken, told, is_complete=matcher.is_complete, failure=matcher.failure)


class DeviceSampler(Sampler):
    """Draws from the same distribution as `Sampler`; a seed gives other tokens than on a CPU.

    What constraints allow is computed on the host before the draw, which is the same for all rows.
    """

    _batch_draw: BatchDraw | None = None

    def draw(self, logits: torch.Tensor, requests: list[Request]) -> list[Drawn]:
        """`logits` has len(drafts) + 1 rows for each request, in order."""
        return self.begin(logits, requests).wait()

    def begin(self, logits: torch.Tensor, requests: list[Request]) -> DeviceDraw:
        """Draws every row as if the drafts before it were right, without waiting."""
        owners = [(request, at) for request in requests for at in range(len(request.draft_token_ids) + 1)]
        ids = self._batch.draw(self._changed(logits, owners), owners)
        return DeviceDraw(requests, [self._matcher(request) for request in requests], logits, ids, fetch(ids))

    def _changed(self, logits: torch.Tensor, owners: list[tuple[Request, int]]) -> torch.Tensor:
        """The rows after penalties, bias, bans and constraints; a copy if there are any, as log-probabilities need the
        raw ones."""
        out = logits
        for index, (request, at) in enumerate(owners):
            matcher = self._matcher(request)
            if matcher is None and leaves_logits(request, at):
                continue
            out = logits.clone() if out is logits else out
            row = logits[index]
            changed = change_logits(row, request, request.draft_token_ids[:at], self._bias(request, len(row)))
            out[index] = changed if matcher is None else within(matcher, changed, row)
        return out

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a finished request."""
        super().forget(request_id)
        self._batch.forget(request_id)

    @property
    def _batch(self) -> BatchDraw:
        """Created at the first draw, so that this class has its parent's constructor."""
        if self._batch_draw is None:
            self._batch_draw = BatchDraw(self._device)
        return self._batch_draw


def accepted(ids: list[int], drafts: list[int]) -> list[int]:
    """Tokens up to and including the first that differs from its draft; if all match, also the one after them."""
    for at, draft in enumerate(drafts):
        if ids[at] != draft:
            return ids[: at + 1]
    return ids
