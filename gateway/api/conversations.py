"""`/v1/conversations`: OpenAI's conversations API, stored by the gateway itself. Nothing is booked."""
# pyright: reportUnusedFunction=false

from typing import Annotated, Any, Literal, cast

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from backends.formats.json_objects import NOT_JSON
from gateway.api.callers_key import tenant_of_caller
from gateway.api.listed import MOST_ITEMS, USUAL_ITEMS, Listed, Order, listed, page_of
from gateway.errors import InvalidRequest
from gateway.kept_answers.conversation_items import Item, shown
from gateway.kept_answers.kept_conversations import Head, KeptConversations, no_item
from gateway.pipeline import Pipeline
from gateway.request.encodings import unreadable, without_byte_order_mark
from gateway.request.many_values import require_bearable

PREFIX = "/v1/conversations"
MOST_AT_ONCE = 20
MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
ConversationId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,512}$")]
ItemId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")]
METADATA: dict[str, Any] = {
    "type": ["object", "null"],
    "maxProperties": MOST_PAIRS,
    "propertyNames": {"maxLength": LONGEST_KEY},
    "additionalProperties": {"type": "string", "maxLength": LONGEST_VALUE},
}
ITEMS: dict[str, Any] = {"type": ["array", "null"], "maxItems": MOST_AT_ONCE, "items": {"type": "object"}}


class Conversation(BaseModel):
    """`created_at` is Unix seconds."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str]


class Deleted(BaseModel):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class _Asked(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, str] | None = None


_ASKED = msgspec.json.Decoder(_Asked)


def _body(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": properties}
    return {"requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}}}


def build_conversations_router(pipeline: Pipeline, conversations: KeptConversations) -> APIRouter:
    """A key sees the conversations of its team, or its own; others are indistinguishable from unknown ids."""
    router = APIRouter(prefix=PREFIX, tags=["models"])

    async def items_of(owner: str, asked: _Asked) -> bytes:
        """The items as JSON, with references to kept responses replaced by what they refer to."""
        given = asked.items or []
        if len(given) > MOST_AT_ONCE:
            raise InvalidRequest(f"items: add at most {MOST_AT_ONCE} at a time.", param="items")
        items = msgspec.json.encode(given)
        kept = pipeline.kept_responses
        return items if kept is None else await kept.dereferenced(owner, items)

    @router.post("", openapi_extra=_body([], items=ITEMS, metadata=METADATA))
    async def create(request: Request) -> Conversation:
        """Create a conversation, which requests to `/v1/responses` can then name."""
        owner, asked = await tenant_of_caller(pipeline, request), await _asked(request)
        conversation_id, head = await conversations.create(owner, await items_of(owner, asked), _metadata(asked))
        return _shown(conversation_id, head)

    @router.get("/{conversation_id}")
    async def retrieve(conversation_id: ConversationId, request: Request) -> Conversation:
        """A conversation's time of creation and metadata."""
        return _shown(
            conversation_id, await conversations.find(await tenant_of_caller(pipeline, request), conversation_id)
        )

    @router.post("/{conversation_id}", openapi_extra=_body(["metadata"], metadata=METADATA))
    async def update(conversation_id: ConversationId, request: Request) -> Conversation:
        """Replace a conversation's metadata."""
        owner, asked = await tenant_of_caller(pipeline, request), await _asked(request, "metadata")
        return _shown(conversation_id, await conversations.describe(owner, conversation_id, _metadata(asked)))

    @router.delete("/{conversation_id}")
    async def delete(conversation_id: ConversationId, request: Request) -> Deleted:
        """Delete a conversation and its items. Responses that were its turns stay until they expire or are deleted."""
        await conversations.delete(await tenant_of_caller(pipeline, request), conversation_id)
        return Deleted(id=conversation_id)

    @router.post("/{conversation_id}/items", openapi_extra=_body(["items"], items={**ITEMS, "type": "array"}))
    async def add(conversation_id: ConversationId, request: Request) -> Listed:
        """Append up to 20 items, either all or none."""
        owner, asked = await tenant_of_caller(pipeline, request), await _asked(request, "items")
        added = await conversations.add(owner, conversation_id, await items_of(owner, asked))
        return _listed(added, has_more=False)

    @router.get("/{conversation_id}/items")
    async def index(
        conversation_id: ConversationId,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = USUAL_ITEMS,
        order: Order = "desc",
        after: Annotated[str | None, Query(max_length=256)] = None,
    ) -> Listed:
        """A page of complete items, newest first unless `order` is `asc`."""
        owner = await tenant_of_caller(pipeline, request)
        ids = (await conversations.find(owner, conversation_id)).ids
        wanted, has_more = page_of(ids, limit=limit, order=order, after=after, of="conversation")
        return _listed(await conversations.items(owner, conversation_id, wanted), has_more=has_more)

    @router.get("/{conversation_id}/items/{item_id}")
    async def item(conversation_id: ConversationId, item_id: ItemId, request: Request) -> dict[str, Any]:
        """One complete item."""
        found = await conversations.items(await tenant_of_caller(pipeline, request), conversation_id, [item_id])
        if not found:
            raise no_item(item_id)
        return shown(found[0])

    @router.delete("/{conversation_id}/items/{item_id}")
    async def remove(conversation_id: ConversationId, item_id: ItemId, request: Request) -> Conversation:
        """Delete one item. The conversation continues as if it had never been there."""
        head = await conversations.remove(await tenant_of_caller(pipeline, request), conversation_id, item_id)
        return _shown(conversation_id, head)

    return router


async def _asked(request: Request, *required: str) -> _Asked:
    body = without_byte_order_mark(await request.body()) or b"{}"
    require_bearable(body)
    try:
        given = msgspec.json.decode(body)
        asked = _ASKED.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The body is not valid here: {error}.") from error
    except NOT_JSON as error:
        raise unreadable(body, error) from error
    for name in required:
        if name not in cast(dict[str, object], given):
            raise InvalidRequest(f"{name}: is missing.", param=name)
    return asked


def _metadata(asked: _Asked) -> dict[str, str]:
    pairs = asked.metadata or {}
    if len(pairs) > MOST_PAIRS or any(len(key) > LONGEST_KEY or len(pairs[key]) > LONGEST_VALUE for key in pairs):
        raise InvalidRequest(
            f"metadata: at most {MOST_PAIRS} pairs, keys of {LONGEST_KEY} characters and values of {LONGEST_VALUE}.",
            param="metadata",
        )
    return pairs


def _shown(conversation_id: str, head: Head) -> Conversation:
    return Conversation(id=conversation_id, created_at=head.created_at, metadata=head.metadata)


def _listed(items: list[Item], *, has_more: bool) -> Listed:
    return listed([shown(one) for one in items], has_more=has_more)
