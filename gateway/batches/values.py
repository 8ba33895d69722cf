"""Files and batches as stored, and the protocols of their stores. Names no technology."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, Literal, Protocol

import msgspec

from backends.protocol import Operation
from gateway.money import format_usd

MESSAGES: Final = "/v1/messages"
"""Batches of these are created at an endpoint of their own."""
ENDPOINTS: Final[dict[str, Operation]] = {
    "/v1/chat/completions": "chat.completions",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/responses": "responses",
    MESSAGES: "messages",
}
"""Endpoints that batches can ask."""

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
"""OpenAI's states. Files are assembled line by line here, so nothing is ever `finalizing`."""
UNDER_WAY: Final[tuple[Status, ...]] = ("validating", "in_progress", "cancelling")
"""States with work left to do."""
ENDED: Final[tuple[Status, ...]] = ("failed", "completed", "expired", "cancelled")

MOST_UNDER_WAY: Final = 100
"""Batches per tenant."""
INPUT: Final = "batch"
OUTPUT: Final = "batch_output"


class StoredFile(msgspec.Struct, frozen=True):
    """A complete file of one tenant. Times are microseconds since the epoch."""

    id: str
    tenant: str
    purpose: str
    name: str
    size_bytes: int
    created_at_us: int
    expires_at_us: int


class LineProblem(msgspec.Struct, frozen=True):
    """Why a file is not a valid batch: `line` counts from 1, None for the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Tokens(msgspec.Struct, frozen=True):
    """Totals over all answers so far, as reported in their bodies."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input_tokens + other.input_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class Progress(msgspec.Struct, frozen=True):
    """What has become of a batch's lines. `cost_pico_usd` covers answers with a known price, `unpriced` counts the
    others. `expired` are those among the failed that were not answered in time. `models` are those that answered,
    sorted by name."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    output_bytes: int = 0
    error_bytes: int = 0
    tokens: Tokens = Tokens()
    cost_pico_usd: int = 0
    unpriced: int = 0
    expired: int = 0
    models: tuple[str, ...] = ()

    def costs(self) -> dict[str, str | int]:
        """The costs as shown to callers."""
        return {"cost_usd": format_usd(self.cost_pico_usd), "answers_without_price": self.unpriced}


class Asked(msgspec.Struct, frozen=True):
    """What the creator of the batch specified. `headers` are sent upstream with each request."""

    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class Batch(msgspec.Struct, frozen=True):
    """`times_us` holds when each state was entered, `deadline_us` when the batch expires, `keep_us` how long its files
    are kept."""

    id: str
    tenant: str
    key_id: str
    status: Status
    created_at_us: int
    deadline_us: int
    keep_us: int
    input_file_id: str
    output_file_id: str
    error_file_id: str
    asked: Asked
    progress: Progress = Progress()
    problems: tuple[LineProblem, ...] = ()
    times_us: dict[str, int] = {}


class LineResult(msgspec.Struct, frozen=True):
    """One line of the output, or of the errors if `is_error`; `line` is its line in the input, from 1."""

    line: int
    text: bytes
    is_error: bool
    tokens: Tokens = Tokens()
    cost_pico_usd: int | None = None
    is_expired: bool = False
    model: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Part of a list: what follows the item `after`, newest first unless specified."""

    limit: int
    after: str | None = None
    is_oldest_first: bool = False


class FileReader(Protocol):
    """What working on a batch needs of its file."""

    def read(self, file_id: str) -> AsyncIterator[bytes]:
        """The file's bytes in order, in parts of any size. Raises NotFound, possibly after some parts if it is deleted
        meanwhile; without that error it was complete."""
        ...


class FileStore(FileReader, Protocol):
    """Uploads and batch output. Tenants see only their own."""

    async def write(self, file: StoredFile, parts: AsyncIterator[bytes], *, most_bytes: int) -> None:
        """Stores a file completely or not at all; the length of `parts` must match its size. Raises BodyTooLarge before
        reading if its tenant would exceed `most_bytes`, counting concurrent uploads."""
        ...

    async def get(self, tenant: str, file_id: str) -> StoredFile | None: ...

    async def list(self, tenant: str, page: Page, *, purpose: str | None) -> tuple[Sequence[StoredFile], bool]:
        """A page, and whether there is more."""
        ...

    async def delete(self, tenant: str, file_id: str) -> bool:
        """False if there is none. Raises Conflict while a batch needs it."""
        ...


class Leases(Protocol):
    """Each batch has at most one worker at a time, as long as that renews its lease."""

    async def claim(self, runner: str, *, seconds: float, most: int, besides: Collection[str] = ()) -> Sequence[Batch]:
        """Claims up to `most` unclaimed batches, oldest first, for `seconds`, skipping the tenants in `besides`.
        Claiming none tests whether the database is up."""
        ...

    async def release(self, runner: str) -> None:
        """Releases at once what this worker holds, or held before it died."""
        ...


class Results(Protocol):
    """What the worker of a batch stores."""

    async def done_lines(self, batch: Batch) -> set[int]:
        """Lines whose results are stored."""
        ...

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        """Stores results and the batch's progress, and renews the lease; with a final state its files become available.
        Returns the batch as it is now, as it may be being cancelled; None, storing nothing, if another worker has
        it."""
        ...


class AllBatches(Protocol):
    """Every tenant's batches, for administrators."""

    async def recent(
        self, limit: int, statuses: Sequence[Status] | None = None, *, tenant: str | None = None
    ) -> Sequence[Batch]:
        """Newest first; optionally only in these states, or of this tenant."""
        ...

    async def stop(self, batch_id: str, *, author: str) -> Batch | None:
        """As `cancel`, for any tenant; audited if it was in progress."""
        ...


class BatchStore(Leases, Results, Protocol):
    """All batches. Tenants see only their own."""

    async def create(self, batch: Batch, *, most_under_way: int = MOST_UNDER_WAY) -> bool:
        """False, creating nothing, if its tenant has that many in progress."""
        ...

    async def get(self, tenant: str, batch_id: str) -> Batch | None: ...

    async def list(self, tenant: str, page: Page, *, prefix: str) -> tuple[Sequence[Batch], bool]:
        """A page of those whose ids begin with `prefix`, and whether there is more."""
        ...

    async def cancel(self, tenant: str, batch_id: str) -> Batch | None:
        """The batch as it is now: `cancelling` if it was in progress, otherwise unchanged. None if there is none."""
        ...

    async def delete(self, batch: Batch) -> None:
        """Deletes it with its files. Raises Conflict while it is in progress."""
        ...

    async def forget(self, now_us: int, keep_us: int) -> int:
        """Deletes files expired by `now_us`, batches older than `keep_us`, and interrupted uploads; returns how
        many."""
        ...
