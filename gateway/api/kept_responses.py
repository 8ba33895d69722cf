"""Requests about responses that the gateway keeps itself, in OpenAI's format. Those that providers store are in
stored_responses.py."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial

import msgspec

from backends.formats.json_objects import Fields
from gateway.api.listed import USUAL_ITEMS, page_of
from gateway.errors import InvalidRequest
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.kept_turns import Turn
from gateway.kept_answers.open_responses import OpenResponses, is_background
from gateway.kept_answers.resumed_stream import ResumedStream
from gateway.kept_answers.store_down import told_as_overloaded
from gateway.request.field_checks import whole_number

_told = partial(
    told_as_overloaded, "kept responses cannot be read", "The response cannot be read right now; try again."
)


async def ask_kept_response(
    kept: KeptResponses, tenant: str, response_id: str, request: str, asked: Mapping[str, str]
) -> bytes | None:
    """The answer to `request` (the method, and what follows the id in the path); None if that response is not kept
    here. Raises InvalidRequest, and Overloaded while the store is unreachable."""
    with _told():
        turn = await kept.find(tenant, response_id)
        if turn is None:
            return None
        match request:
            case "GET":
                return await OpenResponses(kept).shown(tenant, response_id, turn)
            case "GET /input_items":
                return await _input_items(kept, tenant, turn, asked)
            case "DELETE":
                await OpenResponses(kept).delete(tenant, response_id, is_open=turn.is_open)
                return msgspec.json.encode({"id": response_id, "object": "response", "deleted": True})
            case _ if turn.is_open or is_background(turn):
                opened = OpenResponses(kept)
                if turn.is_open:  # otherwise it was finished before
                    await opened.cancel(tenant, response_id)
                return await opened.shown(tenant, response_id, turn)
            case _:
                raise InvalidRequest("Only a background response can be cancelled.")


async def stream_kept_response(
    kept: KeptResponses, tenant: str, response_id: str, last: int
) -> AsyncGenerator[bytes] | None:
    """The events after the one of that number; None if that response is not kept here. Raises InvalidRequest if its
    events are not, and Overloaded."""
    opened = OpenResponses(kept)
    with _told():
        turn = await kept.find(tenant, response_id)
        if turn is None:
            return None
        resumed = ResumedStream(opened, tenant, response_id, last, is_brief=turn.is_brief)
        await resumed.require_events()
        return resumed.events()


async def _input_items(kept: KeptResponses, tenant: str, turn: Turn, asked: Mapping[str, str]) -> bytes:
    """One page, newest first unless `order` is `asc`."""
    given, order = asked.get("limit", str(USUAL_ITEMS)), asked.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order: must be asc or desc.", param="order")
    items = {str(item["id"]): item for item in await kept.input_items(tenant, turn)}
    ids, has_more = page_of(
        list(items),
        limit=whole_number(given) or 0,
        order=order,
        after=asked.get("after"),
        of="response",
    )
    page: Fields = {
        "object": "list",
        "data": [items[one] for one in ids],
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }
    return msgspec.json.encode(page)
