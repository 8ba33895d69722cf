"""Draws for a whole batch of requests in one launch; the token ids stay on the device."""

import secrets
from dataclasses import replace

import torch

from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.request import Request
from local_engine.transfer import send


class BatchDraw:
    """Keeps each request's seed, and the batch's settings on the device as long as its members stay the same."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seeds: dict[str, int] = {}
        self._settings: tuple[tuple[str, ...], SamplingTensors, bool] | None = None

    def forget(self, request_id: str) -> None:
        """Drops a finished request's seed."""
        self._seeds.pop(request_id, None)

    def draw(self, logits: torch.Tensor, owners: list[tuple[Request, int]]) -> torch.Tensor:
        """One token id, int64, per row of `logits`, [rows, vocabulary].

        A row's owner is a request and the number of its drafts before the row.
        """
        if all(request.params.is_greedy for request, _ in owners):
            return logits.argmax(dim=-1)
        position = send([request.length + at for request, at in owners], torch.int32, self._device)
        how, cuts = self._how([request for request, _ in owners])
        return sample(logits, replace(how, position=position), cuts=cuts)

    def _how(self, rows: list[Request]) -> tuple[SamplingTensors, bool]:
        """The rows' settings, and whether any of them has a top_k or a top_p."""
        members = tuple(request.request_id for request in rows)
        if self._settings is None or self._settings[0] != members:
            cuts = any(request.params.top_k > 0 or request.params.top_p < 1.0 for request in rows)
            self._settings = (members, self._send(rows), cuts)
        return self._settings[1], self._settings[2]

    def _send(self, rows: list[Request]) -> SamplingTensors:
        params = [request.params for request in rows]

        def column(values: list[float] | list[int], dtype: torch.dtype) -> torch.Tensor:
            return send(values, dtype, self._device)

        return SamplingTensors(
            temperature=column([0.0 if p.is_greedy else p.temperature for p in params], torch.float32),
            top_k=column([p.top_k for p in params], torch.int32),
            top_p=column([p.top_p for p in params], torch.float32),
            min_p=column([p.min_p for p in params], torch.float32),
            seed=column([self._seed(request) for request in rows], torch.int64),
            position=column([0] * len(params), torch.int32),
        )

    def _seed(self, request: Request) -> int:
        given = request.params.seed
        if request.request_id not in self._seeds:
            self._seeds[request.request_id] = secrets.randbits(63) if given is None else given
        return self._seeds[request.request_id]
