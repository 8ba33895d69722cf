"""Batches with valid defaults, and stores in memory."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from gateway.batches.values import Asked, Batch, LineResult

CHATS = "/v1/chat/completions"


def make_batch(**changes: Any) -> Batch:
    batch = Batch(
        id="batch_1",
        tenant="team red",
        key_id="key-1",
        status="validating",
        created_at_us=0,
        deadline_us=86_400_000_000,
        keep_us=1,
        input_file_id="file-in",
        output_file_id="file-out",
        error_file_id="file-err",
        asked=Asked(CHATS, "24h"),
    )
    return msgspec.structs.replace(batch, **changes)


class MemoryFiles:
    """One file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, file_id: str) -> AsyncGenerator[bytes]:
        for start in range(0, len(self.content), 100):
            yield self.content[start : start + 100]


class MemoryBatches:
    """Records what is saved."""

    def __init__(self) -> None:
        self.saved: Batch = make_batch()
        self.results: dict[int, LineResult] = {}
        self.released = 0

    async def done_lines(self, batch: Batch) -> set[int]:
        return set(self.results)

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        self.saved = batch
        self.results |= {one.line: one for one in results}
        return batch

    async def release(self, runner: str) -> None:
        self.released += 1
