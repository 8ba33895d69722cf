"""Detects a blocked event loop in a child: the child writes into a pipe all the time, and the parent checks that it
does."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

BEAT_SECONDS = 1.0


async def beat(descriptor: int) -> None:
    """Runs forever in the child. Ignores a parent that does not read or is gone."""
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    while True:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(descriptor, b".")
        await asyncio.sleep(BEAT_SECONDS)


@dataclass(frozen=True, slots=True)
class Patience:
    """A child that has begun to beat is given up after this many checks in a row without a beat.

    Checks are counted, not seconds: if parent and child stood still together (a suspended machine, a paused container),
    that is not the child's fault.
    """

    looks: int = 20
    look_seconds: float = BEAT_SECONDS


class Pulse:
    """A pipe to one child, in the parent; `descriptor` is the child's end."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._heard, self.descriptor = os.pipe()
        os.set_blocking(self._heard, False)

    def arguments(self) -> Sequence[str]:
        """Arguments for the child's command line."""
        return "--beats", str(self.descriptor)

    def left_to_child(self) -> None:
        """Close our copy of the child's end."""
        os.close(self.descriptor)

    async def stops(self) -> float:
        """Returns when a child that had begun to beat stops beating (or ends): the seconds without a beat."""
        missed = None
        while missed is None or missed < self._patience.looks:
            await asyncio.sleep(self._patience.look_seconds)
            if self._was_heard():
                missed = 0
            elif missed is not None:
                missed += 1
        return missed * self._patience.look_seconds

    def close(self) -> None:
        os.close(self._heard)

    def _was_heard(self) -> bool:
        try:
            return bool(os.read(self._heard, 65_536))
        except BlockingIOError:
            return False
