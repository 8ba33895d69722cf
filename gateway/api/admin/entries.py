"""`/admin/v1/entries` and `/v1/requests/{id}`: single requests from the ledger, which does not hold their text."""
# pyright: reportUnusedFunction=false

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request

from gateway.access.keys import KeyRing
from gateway.api.admin.entry_views import EntryDetail, EntryFilter, EntryPage, EntrySummary, detail, summary
from gateway.api.admin.guard import OnlyTeam, narrowed, needs
from gateway.api.late_entries import get_soon
from gateway.api.token_path import credential_of
from gateway.ledger.entry import Entry
from gateway.stores import EntryStore, EntryWanted


def build_entries_router(entries: EntryStore) -> APIRouter:
    """The paths below `/entries`."""
    router = APIRouter(prefix="/entries", tags=["admin: entries"])

    @router.get("", openapi_extra=needs("entries.read", or_lead=True))
    async def find(asked: Annotated[EntryFilter, Query()], only_team: OnlyTeam) -> EntryPage:
        """Requests that match the filter: newest first, or most expensive or slowest first."""
        found = await find_summaries(entries, narrowed(asked, only_team).wanted())
        return EntryPage(entries=found, next_before=found[-1].request_id if len(found) == asked.limit else None)

    @router.get("/{request_id}", openapi_extra=needs("entries.read", or_lead=True))
    async def get(request_id: str, only_team: OnlyTeam) -> EntryDetail:
        """One request: tokens and cost by class, corrections, attempts, latencies."""
        return await get_detail(entries, request_id, of_team=only_team)

    return router


def build_own_requests_router(entries: EntryStore, keys: KeyRing, now_us: Callable[[], int]) -> APIRouter:
    """`/v1/requests/{id}`: a key sees its own requests; those of other keys are indistinguishable from unknown ids."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/requests/{request_id}")
    async def own_request(request_id: str, request: Request) -> EntryDetail:
        """The cost and course of one of this key's own requests."""
        key = keys.authenticate(credential_of(request.scope["headers"]), now_us())
        return await get_detail(entries, request_id, of_key=key.id)

    return router


async def find_summaries(entries: EntryStore, wanted: EntryWanted) -> list[EntrySummary]:
    """In the requested order, including corrections booked since."""
    found = await entries.find(wanted)
    corrections = await entries.corrections([entry.intent.request_id for entry in found])
    return [summary(entry, corrections.get(entry.intent.request_id, ())) for entry in found]


async def get_detail(
    entries: EntryStore, request_id: str, *, of_key: str | None = None, of_team: str | None = None
) -> EntryDetail:
    """Including corrections booked since. Raises NotFound, also if the request is not of the given key or team."""

    def is_open(entry: Entry) -> bool:
        return of_key in (None, entry.intent.key_id) and of_team in (None, entry.intent.team)

    entry = await get_soon(entries, request_id, is_open)
    number = entry.intent.request_id
    return detail(entry, (await entries.corrections([number])).get(number, ()))
