"""Turns a scheduled batch into drawn tokens: begun now, waited for later. Knows no queue, no text, no clock.

A device that runs ahead accepts the next batch while it computes this one. It executes batches in order, and itself
fills in the tokens that it has drawn and the host has not seen (`Request.in_flight_tokens`).
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from local_engine.request import Request
from local_engine.sampling.sampler import Drawn, Sampler
from local_engine.scheduler import Batch, Row


class Runner(Protocol):
    """Computes a batch's logits, and fills in `Request.prompt_logprobs` where requested."""

    @property
    def device(self) -> torch.device: ...

    def run(self, batch: Batch) -> torch.Tensor: ...


class BegunStep(Protocol):
    """A batch that the device has accepted."""

    def wait(self) -> list[Drawn]:
        """One draw per row, empty for a row that does not reach the end of its prompt."""
        ...


class Steps(Protocol):
    """Computes batches and draws from them."""

    @property
    def runs_ahead(self) -> bool:
        """Whether a batch may begin before the previous one was waited for."""
        ...

    def begin(self, batch: Batch) -> BegunStep: ...

    def check(self) -> None:
        """After a failed step: raises DeviceLost if no other can succeed."""
        ...

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that has ended."""
        ...


class DirectSteps:
    """Steps on a device that the host waits for anyway: everything is done when `begin` returns."""

    runs_ahead = False

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self._runner = runner
        self._sampler = sampler

    def begin(self, batch: Batch) -> "DoneStep":
        """Computes and draws."""
        logits = self._runner.run(batch)
        drawing = drawing_requests(batch.rows)
        return DoneStep(one_per_row(batch.rows, self._sampler.draw(logits, drawing) if drawing else []))

    def check(self) -> None:
        """A CPU is never lost."""

    def forget(self, request_id: str) -> None:
        """Drops a request's generator and matcher."""
        self._sampler.forget(request_id)


@dataclass(frozen=True, slots=True)
class DoneStep:
    drawn: list[Drawn]

    def wait(self) -> list[Drawn]:
        """What was drawn."""
        return self.drawn


def drawing_requests(rows: tuple[Row, ...]) -> list[Request]:
    """The requests of the batch for which something is drawn, in order."""
    return [row.request for row in rows if row.needs_logits]


def one_per_row(rows: tuple[Row, ...], drawn: list[Drawn]) -> list[Drawn]:
    """Adds an empty draw for rows without one."""
    rest = iter(drawn)
    return [next(rest) if row.needs_logits else Drawn([], []) for row in rows]
