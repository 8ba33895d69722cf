"""How a scheduled batch becomes drawn tokens: begun now, waited for later. Knows no queue, no text, no clock.

A device that runs ahead takes the next batch while it computes this one. It carries batches out in the order they were
begun, and it fills in itself the tokens that it has drawn and the host has not seen (`Request.in_flight_tokens`).
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from local_engine.request import Request
from local_engine.sampling.sampler import Drawn, Sampler
from local_engine.scheduler import Batch, Row


class Runner(Protocol):
    """Computes a batch's logits, and writes `Request.prompt_logprobs` of those who ask for them."""

    @property
    def device(self) -> torch.device: ...

    def run(self, batch: Batch) -> torch.Tensor: ...


class BegunStep(Protocol):
    """A batch that the device has taken."""

    def wait(self) -> list[Drawn]:
        """One draw per row, empty for a row whose prompt is not computed to its end."""
        ...


class Steps(Protocol):
    """Computes batches and draws from them."""

    @property
    def runs_ahead(self) -> bool:
        """Whether a batch may be begun before the one before it was waited for."""
        ...

    def begin(self, batch: Batch) -> BegunStep: ...

    def check(self) -> None:
        """After a step that failed: raise DeviceLost if no other can succeed."""
        ...

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a request that ended."""
        ...


class DirectSteps:
    """Steps on a device that the host waits for anyway: all is done when `begin` returns."""

    runs_ahead = False

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self._runner = runner
        self._sampler = sampler

    def begin(self, batch: Batch) -> "DoneStep":
        """Compute and draw."""
        logits = self._runner.run(batch)
        drawing = drawing_requests(batch.rows)
        return DoneStep(one_per_row(batch.rows, self._sampler.draw(logits, drawing) if drawing else []))

    def check(self) -> None:
        """A processor is never lost."""

    def forget(self, request_id: str) -> None:
        """Drop a request's generator and matcher."""
        self._sampler.forget(request_id)


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that is over."""

    drawn: list[Drawn]

    def wait(self) -> list[Drawn]:
        """What was drawn."""
        return self.drawn


def drawing_requests(rows: tuple[Row, ...]) -> list[Request]:
    """Those of the batch that something is drawn for, in order."""
    return [row.request for row in rows if row.needs_logits]


def one_per_row(rows: tuple[Row, ...], drawn: list[Drawn]) -> list[Drawn]:
    """Put an empty draw where nothing was drawn."""
    rest = iter(drawn)
    return [next(rest) if row.needs_logits else Drawn([], []) for row in rows]
