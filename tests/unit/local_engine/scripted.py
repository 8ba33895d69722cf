"""A model simple enough to reason about: the next token depends on all previous ones, through the paged cache."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace

import torch

from local_engine.request import Request
from local_engine.sampling.prompt_scores import score_prompts
from local_engine.sampling.sampler import Drawn, Sampler
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row
from local_engine.steps import DirectSteps

VOCABULARY = 97


class SlotRunner:
    """Writes every token into its slot, and draws from what the block table then refers to.

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
        if any(row.request.params.prompt_logprobs is not None for row in batch.rows):
            score_prompts(batch.rows, torch.stack(self._everywhere(batch)), lambda logits: logits)
        logits: list[torch.Tensor] = []
        for row in batch.rows:
            if row.needs_logits:
                end = row.start + row.count
                logits += [self._logits(row.request, upto) for upto in range(end - row.drafts, end + 1)]
        return torch.stack(logits) if logits else torch.empty(0, VOCABULARY)

    def _everywhere(self, batch: Batch) -> list[torch.Tensor]:
        """The logits of every position in the batch."""
        return [
            self._logits(row.request, at + 1) for row in batch.rows for at in range(row.start, row.start + row.count)
        ]

    def _slot(self, request: Request, position: int) -> int:
        block = request.block_ids[position // self._block_size]
        return block * self._block_size + position % self._block_size

    def _logits(self, request: Request, upto: int) -> torch.Tensor:
        seen = [self._slots[self._slot(request, position)] for position in range(upto)]
        logits = torch.zeros(VOCABULARY)
        logits[next_token(seen)] = 10.0
        return logits


def direct(runner: SlotRunner) -> DirectSteps:
    """The scripted model on a device that the host waits for."""
    return DirectSteps(runner, Sampler(runner.device))


class AheadSteps:
    """The scripted model on a device that runs ahead: a thread that executes batches in order.

    It sees a batch as it was when it was begun, and takes tokens in flight from its own draws. `told` lists the host's
    calls, in order: ("begin" or "wait", number of the step).
    """

    runs_ahead = True

    def __init__(self, runner: SlotRunner) -> None:
        self._steps = direct(runner)
        self._device = ThreadPoolExecutor(max_workers=1)
        self._drawn: dict[str, int] = {}
        self.told: list[tuple[str, int]] = []

    def begin(self, batch: Batch) -> "AheadStep":
        seen = Batch(tuple(replace(row, request=_as_it_is(row.request)) for row in batch.rows))
        number = sum(what == "begin" for what, _ in self.told)
        self.told.append(("begin", number))
        done = self._device.submit(self._compute, seen)
        return AheadStep(done, lambda: self.told.append(("wait", number)))

    def check(self) -> None:
        self._steps.check()

    def forget(self, request_id: str) -> None:
        self._device.submit(self._steps.forget, request_id)

    def close(self) -> None:
        """End the thread."""
        self._device.shutdown()

    def _compute(self, batch: Batch) -> list[Drawn]:
        for row in batch.rows:
            self._fill_in(row)
        drawn = self._steps.begin(batch).wait()
        self._drawn = {
            row.request.request_id: new.token_ids[-1]
            for row, new in zip(batch.rows, drawn, strict=True)
            if new.token_ids
        }
        return drawn

    def _fill_in(self, row: Row) -> None:
        if row.request.in_flight_tokens:
            row.request.token_ids.append(self._drawn[row.request.request_id])
            row.request.in_flight_tokens = 0


@dataclass(frozen=True, slots=True)
class AheadStep:
    """A batch that the thread executes, or will execute."""

    done: Future[list[Drawn]]
    tell: Callable[[], None] = field(repr=False)

    def wait(self) -> list[Drawn]:
        self.tell()
        return self.done.result()


def _as_it_is(request: Request) -> Request:
    """A copy that the host's later changes do not affect."""
    seen = copy(request)
    seen.token_ids, seen.block_ids = list(request.token_ids), list(request.block_ids)
    seen.draft_token_ids = list(request.draft_token_ids)
    return seen


def next_token(tokens: list[int]) -> int:
    """A rolling hash of the whole history, with an occasional short cycle so that drafts can match."""
    if len(tokens) % 7 < 4 and len(tokens) > 3:
        return tokens[-3]
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def expected_answer(prompt: list[int], count: int) -> list[int]:
    """The answer that an engine of any configuration must give."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def make_request(name: str, prompt: list[int], **changes: object) -> Request:
    """A greedy request; keyword arguments go to its sampling parameters."""
    params: dict[str, object] = {"temperature": 0.0, "max_tokens": 8} | changes
    return Request(name, prompt, SamplingParams(**params))  # pyright: ignore[reportArgumentType]
