"""Steps on a GPU that runs ahead of its host: newly drawn tokens go from one batch to the next without leaving the
GPU."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from triton.errors import TritonError

from local_engine.gpu_faults import check_answers
from local_engine.kernels.device_sampler import DeviceDraw, DeviceSampler
from local_engine.kernels.gpu_runner import GpuRunner
from local_engine.model_runner import TokenPatch
from local_engine.sampling.sampler import Drawn
from local_engine.scheduler import Batch, Row
from local_engine.steps import DoneStep, drawing_requests, one_per_row
from local_engine.transfer import on_device


class GpuSteps:
    """Remembers the previous draw, for rows whose last token the host has not seen."""

    def __init__(self, runner: GpuRunner, sampler: DeviceSampler, *, runs_ahead: bool = True) -> None:
        self.runs_ahead = runs_ahead
        self._runner = runner
        self._sampler = sampler
        self._ids = torch.empty(0, dtype=torch.int64, device=runner.device)
        self._place: dict[str, int] = {}

    def begin(self, batch: Batch) -> "GpuStep | DoneStep":
        """Launch the batch and its draw on the runner's device, whichever thread calls.

        Raises RuntimeError, as torch does, if a kernel does not compile for the device.
        """
        try:
            with on_device(self._runner.device):
                return self._begin(batch)
        except TritonError as error:
            raise RuntimeError(str(error)) from error

    def _begin(self, batch: Batch) -> "GpuStep | DoneStep":
        logits = self._runner.run(batch, self._patch(batch.rows))
        requests = drawing_requests(batch.rows)
        if not requests:
            return DoneStep(one_per_row(batch.rows, []))
        draw = self._sampler.begin(logits, requests)
        self._ids = draw.ids
        ends = accumulate(len(request.draft_token_ids) + 1 for request in requests)
        self._place = {request.request_id: end - 1 for request, end in zip(requests, ends, strict=True)}
        return GpuStep(batch.rows, draw)

    def check(self) -> None:
        """Raises DeviceLost if the device refuses everything after a fault."""
        check_answers(self._runner.device)

    def forget(self, request_id: str) -> None:
        """Drops a request's generator, matcher and seed."""
        self._sampler.forget(request_id)

    def _patch(self, rows: tuple[Row, ...]) -> TokenPatch | None:
        """Index in the batch of each token in flight, and its index in the last draw."""
        targets: list[int] = []
        sources: list[int] = []
        end = 0
        for row in rows:
            end += row.count
            if row.needs_logits and row.request.in_flight_tokens:
                targets.append(end - 1)
                sources.append(self._place[row.request.request_id])
        return TokenPatch(self._ids, targets, sources) if targets else None


@dataclass(frozen=True, slots=True)
class GpuStep:
    """A launched batch."""

    rows: tuple[Row, ...]
    draw: DeviceDraw

    def wait(self) -> list[Drawn]:
        """Waits only for the token ids; the device continues with later work."""
        return one_per_row(self.rows, self.draw.wait())
