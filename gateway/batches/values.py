"""Files and batches as they are stored, and what is asked of whoever stores them. Knows no technology."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, Literal, Protocol

import msgspec

from backends.protocol import Operation
from gateway.money import format_usd

MESSAGES: Final = "/v1/messages"
"""Batches of these are made at an endpoint of their own."""
ENDPOINTS: Final[dict[str, Operation]] = {
    "/v1/chat/completions": "chat.completions",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/responses": "responses",
    MESSAGES: "messages",
}
"""What a batch may ask."""

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
"""OpenAI's. A file is put together line by line here, so that nothing is ever seen `finalizing`."""
UNDER_WAY: Final[tuple[Status, ...]] = ("validating", "in_progress", "cancelling")
"""The states in which somebody has work to do."""
ENDED: Final[tuple[Status, ...]] = ("failed", "completed", "expired", "cancelled")

MOST_UNDER_WAY: Final = 100
"""Batches of one tenant."""
INPUT: Final = "batch"
OUTPUT: Final = "batch_output"


class StoredFile(msgspec.Struct, frozen=True):
    """Whole, and of one tenant. Times are microseconds since the epoch."""

    id: str
    tenant: str
    purpose: str
    name: str
    size_bytes: int
    created_at_us: int
    expires_at_us: int


class LineProblem(msgspec.Struct, frozen=True):
    """Why a file is no batch: `line` counts from 1; None where it is about the whole."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Tokens(msgspec.Struct, frozen=True):
    """Of all answers so far, as their bodies tell them."""

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
    """What has come of a batch's lines. `cost_pico_usd` is of answers whose price is known, `unpriced` have none;
    `expired` are those of the failed ones that were not answered in time. `models` answered, in the order of their
    names."""

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
        """As callers are told."""
        return {"cost_usd": format_usd(self.cost_pico_usd), "answers_without_price": self.unpriced}


class Asked(msgspec.Struct, frozen=True):
    """What whoever made the batch said. `headers` are those that go upstream with each request."""

    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class Batch(msgspec.Struct, frozen=True):
    """`times_us` says since when it has been in each state that it reached. `deadline_us` is when it expires, `keep_us`
    for how long what it writes is kept."""

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
    """One line of the output, or of the errors if it `is_error`; `line` is its place in the input, from 1."""

    line: int
    text: bytes
    is_error: bool
    tokens: Tokens = Tokens()
    cost_pico_usd: int | None = None
    is_expired: bool = False
    model: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Which part of a list is wanted: what comes behind the one named `after`, the newest first unless said."""

    limit: int
    after: str | None = None
    is_oldest_first: bool = False


class FileReader(Protocol):
    """What whoever works on a batch needs of its file."""

    def read(self, file_id: str) -> AsyncIterator[bytes]:
        """Its bytes, in order, in parts of any size. Raises NotFound, after some of them where it is deleted meanwhile:
        what ends without is whole."""
        ...


class FileStore(FileReader, Protocol):
    """What callers uploaded, and what batches wrote. Nobody finds another tenant's."""

    async def write(self, file: StoredFile, parts: AsyncIterator[bytes], *, most_bytes: int) -> None:
        """Store it whole or not at all; `parts` are as long as it says. Raises BodyTooLarge, before the first of them,
        where its tenant would have more than `most_bytes`, with what it uploads meanwhile."""
        ...

    async def get(self, tenant: str, file_id: str) -> StoredFile | None: ...

    async def list(self, tenant: str, page: Page, *, purpose: str | None) -> tuple[Sequence[StoredFile], bool]:
        """A page, and whether there is more."""
        ...

    async def delete(self, tenant: str, file_id: str) -> bool:
        """False when there is none. Raises Conflict while a batch needs it."""
        ...


class Leases(Protocol):
    """One runner at a time has a batch, for as long as it goes on saying so."""

    async def claim(self, runner: str, *, seconds: float, most: int, besides: Collection[str] = ()) -> Sequence[Batch]:
        """Take up to so many that nobody has, the oldest first, for so many seconds; none of the tenants `besides`.
        Taking none shows whether there is a database."""
        ...

    async def release(self, runner: str) -> None:
        """Let anybody have at once what this one has, or had before it died."""
        ...


class Results(Protocol):
    """What whoever has a batch stores of it."""

    async def done_lines(self, batch: Batch) -> set[int]:
        """Whose results are stored."""
        ...

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        """Store results with what has come of the batch, and keep it for so many seconds more; with a state in which
        nothing is left to do its files are there. The batch as it is now: somebody may be cancelling it. None, with
        nothing stored, where another runner has it."""
        ...


class AllBatches(Protocol):
    """Every tenant's, for those who run the gateway."""

    async def recent(
        self, limit: int, statuses: Sequence[Status] | None = None, *, tenant: str | None = None
    ) -> Sequence[Batch]:
        """The newest first; only those in these states, or of this tenant, where any is given."""
        ...

    async def stop(self, batch_id: str, *, author: str) -> Batch | None:
        """As `cancel`, of whichever tenant; audited where it was under way."""
        ...


class BatchStore(Leases, Results, Protocol):
    """All batches. Nobody finds another tenant's."""

    async def create(self, batch: Batch, *, most_under_way: int = MOST_UNDER_WAY) -> bool:
        """False, and none made, where its tenant has so many under way."""
        ...

    async def get(self, tenant: str, batch_id: str) -> Batch | None: ...

    async def list(self, tenant: str, page: Page, *, prefix: str) -> tuple[Sequence[Batch], bool]:
        """A page of those whose names begin so, and whether there is more."""
        ...

    async def cancel(self, tenant: str, batch_id: str) -> Batch | None:
        """As it is now: `cancelling` if it was under way, else as it was. None when there is none."""
        ...

    async def delete(self, batch: Batch) -> None:
        """With its files. Raises Conflict while it is under way."""
        ...

    async def forget(self, now_us: int, keep_us: int) -> int:
        """By then, delete files that have expired, batches older than that, and uploads that broke off; how many."""
        ...
