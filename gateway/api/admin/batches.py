"""`/admin/v1/batches`: the batches of every team, their progress and cost; a batch can be cancelled."""
# pyright: reportUnusedFunction=false

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from gateway.api.admin.guard import Caller, OnlyTeam, needs
from gateway.api.listed import NAME
from gateway.batches.values import ENDED, UNDER_WAY, AllBatches, Batch, LineProblem, Status
from gateway.errors import NotFound
from gateway.ledger.entry import tenant_of
from gateway.money import format_usd
from gateway.stores import BatchBooks, BatchCost

KeyNames = Callable[[Collection[str]], Awaitable[Mapping[str, str]]]
State = Literal["under_way", "ended"]
STATUSES: Mapping[State | None, tuple[Status, ...] | None] = {None: None, "under_way": UNDER_WAY, "ended": ENDED}
TEAM = tenant_of("", "")


class BatchRow(BaseModel):
    """The current state of a batch. `cost_usd` covers its answers so far, except the `answers_without_price`; `models`
    gave them. `key` created it, and belonged to `team` then. `ended_at_us` is null while it is in progress; `problem`
    is the first error in its file, if it failed because of that."""

    id: str
    status: Status
    endpoint: str
    team: str | None
    key_id: str
    key: str | None
    total: int
    completed: int
    failed: int
    models: list[str]
    cost_usd: str
    answers_without_price: int
    created_at_us: int
    deadline_us: int
    ended_at_us: int | None
    problem: str | None


class BookedCost(BaseModel):
    """The cost of all requests of a batch in the ledger, including corrections, retries and requests without an answer.
    `cost_usd` is null if no price is known; otherwise it leaves out the `unpriced_requests`."""

    requests: int
    unpriced_requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: str | None


class BatchRows(BaseModel):
    batches: list[BatchRow]


def build_all_batches_router(batches: AllBatches, key_names: KeyNames, books: BatchBooks) -> APIRouter:
    """The paths below `/batches`."""
    router = APIRouter(prefix="/batches", tags=["admin: batches"])

    async def shown(*found: Batch) -> list[BatchRow]:
        names = await key_names({one.key_id for one in found})
        return [_row(one, names.get(one.key_id)) for one in found]

    @router.get("", openapi_extra=needs("entries.read", or_lead=True))
    async def list_batches(
        only_team: OnlyTeam,
        state: Annotated[State | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> BatchRows:
        """Batches, newest first."""
        tenant = None if only_team is None else tenant_of(only_team, "")
        return BatchRows(batches=await shown(*await batches.recent(limit, STATUSES[state], tenant=tenant)))

    @router.get("/{batch_id}/cost", openapi_extra=needs("entries.read", or_lead=True))
    async def cost(batch_id: Annotated[str, Path(pattern=NAME)], only_team: OnlyTeam) -> BookedCost:
        """The cost of a batch's requests in the ledger, even after the batch itself has been deleted."""
        return booked(await books.batch_cost(batch_id, team=only_team))

    @router.post("/{batch_id}/cancel", openapi_extra=needs("batches.write"))
    async def cancel(batch_id: Annotated[str, Path(pattern=NAME)], caller: Caller) -> BatchRow:
        """Cancel a batch: its remaining requests are not sent. Finished answers stay in its output file."""
        batch = await batches.stop(batch_id, author=caller.name)
        if batch is None:
            raise NotFound(f"There is no batch {batch_id!r}.", code="batch_not_found")
        [row] = await shown(batch)
        return row

    return router


def booked(cost: BatchCost) -> BookedCost:
    """If no request of the batch has a known price, the cost is unknown, not $0."""
    is_unknown = cost.requests == cost.unpriced_requests > 0
    return BookedCost(
        requests=cost.requests,
        unpriced_requests=cost.unpriced_requests,
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cost_usd=None if is_unknown else format_usd(cost.cost_pico_usd),
    )


def _row(batch: Batch, key: str | None) -> BatchRow:
    said = batch.progress
    return BatchRow(
        id=batch.id,
        status=batch.status,
        endpoint=batch.asked.endpoint,
        team=batch.tenant.removeprefix(TEAM) if batch.tenant.startswith(TEAM) else None,
        key_id=batch.key_id,
        key=key,
        total=said.total,
        completed=said.completed,
        failed=said.failed,
        models=list(said.models),
        cost_usd=format_usd(said.cost_pico_usd),
        answers_without_price=said.unpriced,
        created_at_us=batch.created_at_us,
        deadline_us=batch.deadline_us,
        ended_at_us=batch.times_us.get(batch.status) if batch.status in ENDED else None,
        problem=_problem(batch.problems[0]) if batch.problems else None,
    )


def _problem(problem: LineProblem) -> str:
    """The code and line only: the message quotes the file's content."""
    return problem.code if problem.line is None else f"{problem.code} in line {problem.line}"
