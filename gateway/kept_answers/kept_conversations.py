"""Conversations that the gateway stores (OpenAI's `/v1/conversations`), for any model: each turn gets all earlier
items, and what it adds is appended atomically when it has completed.

A conversation is a head that names its pieces, and the pieces, each a run of items. All are encrypted with the tenant's
secret, and their expiry is renewed together. Knows no store and no HTTP.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

import msgspec

from gateway.errors import BodyTooLarge, InvalidRequest, NotFound, Overloaded, StoreDown
from gateway.kept_answers.conversation_items import Item, join_items, parse_items, split_items
from gateway.kept_answers.record_store import Change, RecordStore, pseudonym
from gateway.kept_answers.sealing import Seal
from gateway.kept_answers.store_down import told_as_overloaded
from gateway.process.tasks import to_its_end

log = logging.getLogger(__name__)
T = TypeVar("T")
PREFIX: Final = "conv_bk_"
"""Prefix of ids made here; any other id is a provider's."""
MOST_ITEMS: Final = 10_000
PIECE_BYTES: Final = 64 << 10
"""Items are appended to the last piece up to this size: a turn reads few pieces, and an append rewrites little."""
LEASE_SECONDS: Final = 30.0
"""How long a conversation stays locked if a turn's process was killed."""
RENEW_SECONDS: Final = 10.0
MOST_TRIES: Final = 20
_told = partial(
    told_as_overloaded, "kept conversations cannot be used", "The conversation cannot be used right now; try again."
)


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A run of items: the name of its record, the items' ids, and their size in bytes."""

    name: str
    ids: list[str]
    size: int


class Head(msgspec.Struct, frozen=True, array_like=True):
    """`created_at` is in Unix seconds."""

    created_at: int
    metadata: dict[str, str]
    pieces: list[Piece]

    @property
    def ids(self) -> list[str]:
        return [one for piece in self.pieces for one in piece.ids]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


class Belonging(msgspec.Struct, frozen=True):
    """A request's conversation, with its items so far as a JSON array."""

    tenant: str
    conversation_id: str
    items: bytes


class _Found(msgspec.Struct, frozen=True):
    """A stored head. `sealed` are its stored bytes, to detect concurrent changes; None if it is not stored yet."""

    conversation_id: str
    tenant: str
    name: str
    sealed: bytes | None
    head: Head


class _Changed(Exception):
    """The conversation was changed while it was read."""


class KeptConversations:
    """One per worker process, over stores that may be shared. `secret` returns a tenant's 32 bytes; `most_bytes` limits
    a conversation, as it does a request; if `seconds` is 0, nothing is kept. Every method may raise RequestError, and
    Overloaded while a store is unreachable."""

    def __init__(
        self,
        store: RecordStore,
        locks: RecordStore,
        secret: Callable[[str], bytes],
        *,
        seconds: float = 30 * 86_400.0,
        most_bytes: int = 32 << 20,
        most_items: int = MOST_ITEMS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._locks = locks
        self._seal = Seal(secret)
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._most_items = most_items
        self._now = now

    async def create(self, tenant: str, items: bytes, metadata: Mapping[str, str]) -> tuple[str, Head]:
        """Creates a conversation; returns its id and head."""
        if not self._seconds:
            raise InvalidRequest(
                "This gateway keeps no conversations or responses: kept_answers.response_hours in breakeven.yaml is 0 "
                "or, with Redis, not set. Send the conversation with each request, or create it at its provider."
            )
        conversation_id = f"{PREFIX}{secrets.token_hex(24)}"
        name, head = _name(tenant, conversation_id), Head(int(self._now()), dict(metadata), [])
        found = _Found(conversation_id, tenant, name, None, head)
        with _told():
            head, change = await self._longer(found, parse_items(items, ()), is_bounded=True)
            await self._store.swap(change, self._seconds)
        return conversation_id, head

    async def find(self, tenant: str, conversation_id: str) -> Head:
        with _told():
            return (await self._found(tenant, conversation_id)).head

    async def describe(self, tenant: str, conversation_id: str, metadata: Mapping[str, str]) -> Head:
        """Replaces the metadata."""

        async def described(found: _Found) -> tuple[Head, Change]:
            head = msgspec.structs.replace(found.head, metadata=dict(metadata))
            return head, self._change(found, head)

        return await self._changed(tenant, conversation_id, described)

    async def delete(self, tenant: str, conversation_id: str) -> None:
        async def deleted(found: _Found) -> tuple[Head, Change]:
            return found.head, _removal(found)

        await self._changed(tenant, conversation_id, deleted)

    async def add(self, tenant: str, conversation_id: str, items: bytes, *, is_bounded: bool = True) -> list[Item]:
        """Appends all items, or none."""
        added: list[Item] = []

        async def longer(found: _Found) -> tuple[Head, Change]:
            added[:] = parse_items(items, found.head.ids)
            return await self._longer(found, added, is_bounded=is_bounded)

        await self._changed(tenant, conversation_id, longer)
        return added

    async def items(self, tenant: str, conversation_id: str, ids: Sequence[str]) -> list[Item]:
        """The items with these ids, in this order; unknown ids are left out."""

        async def read() -> list[Item]:
            found = await self._found(tenant, conversation_id)
            wanted, items = set(ids), dict[str, Item]()
            for piece in found.head.pieces:
                if not wanted.isdisjoint(piece.ids):
                    items.update((one.id, one) for one in await self._read(found, piece, None))
            return [items[one] for one in ids if one in items]

        return await self._tried(read)

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> Head:
        """Erases the item; nothing of it can be recovered."""

        async def shorter(found: _Found) -> tuple[Head, Change]:
            place = next((place for place, one in enumerate(found.head.pieces) if item_id in one.ids), None)
            if place is None:
                raise no_item(item_id)
            old = found.head.pieces[place]
            left = [one for one in await self._read(found, old, None) if one.id != item_id]
            new, beside = self._piece(found, left) if left else (None, dict[str, bytes]())
            pieces = [*found.head.pieces[:place], *([new] if new else []), *found.head.pieces[place + 1 :]]
            head = msgspec.structs.replace(found.head, pieces=pieces)
            return head, self._change(found, head, beside, gone=[old], erases=True)

        return await self._changed(tenant, conversation_id, shorter)

    async def read(self, tenant: str, conversation_id: str) -> Belonging:
        """The conversation with all its items."""

        async def read() -> bytes:
            found = await self._found(tenant, conversation_id, self._seconds)
            self._require_bearable(found.head.size)
            self._require_few(len(found.head.ids) + 1)
            pieces = [await self._read(found, piece, self._seconds) for piece in found.head.pieces]
            return join_items([one.given for piece in pieces for one in piece])

        return Belonging(tenant, conversation_id, await self._tried(read))

    @asynccontextmanager
    async def turn(self, tenant: str, conversation_id: str) -> AsyncGenerator[Belonging]:
        """As `read`, with the conversation locked for one turn."""
        name, holder = _name(tenant, f"{conversation_id}/turn"), secrets.token_bytes(16)
        renewing: asyncio.Task[None] | None = None
        try:
            with _told():
                if not await to_its_end(self._locks.swap(Change(name, None, holder), LEASE_SECONDS)):
                    raise InvalidRequest(
                        "Another request is using this conversation: wait until it has ended, then try again.",
                        param="conversation",
                        code="conversation_locked",
                    )
            renewing = asyncio.create_task(self._renew(name, holder))
            yield await self.read(tenant, conversation_id)
        finally:  # also of a caller that left, or heard of an outage, while the lock was taken
            if renewing is not None:
                renewing.cancel()
            with suppress(StoreDown):  # its lease ends
                await self._locks.swap(Change(name, holder, None), LEASE_SECONDS)

    async def append(self, belonging: Belonging, items: Sequence[bytes]) -> bool:
        """Appends what a turn has added, all or nothing. False if it could not: the answer is sent anyway."""
        try:
            await self.add(belonging.tenant, belonging.conversation_id, join_items(items), is_bounded=False)
        except (Overloaded, NotFound, InvalidRequest) as error:
            log.warning("a turn is not kept in its conversation: %s", error)
            return False
        return True

    async def _changed(
        self,
        tenant: str,
        conversation_id: str,
        change: Callable[[_Found], Awaitable[tuple[Head, Change]]],
    ) -> Head:
        """Applies `change` to the current state; returns the new head."""

        async def changed() -> Head:
            head, asked = await change(await self._found(tenant, conversation_id))
            if not await self._store.swap(asked, self._seconds):
                raise _Changed
            return head

        return await self._tried(changed)

    async def _tried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries `attempt` if a concurrent change came first."""
        with _told():
            for _ in range(MOST_TRIES):
                with suppress(_Changed):
                    return await attempt()
        raise Overloaded("Too many requests change this conversation at once; try again.", retry_after_seconds=1.0)

    async def _longer(self, found: _Found, added: Sequence[Item], *, is_bounded: bool) -> tuple[Head, Change]:
        head = found.head
        size = sum(len(one.given) + 1 for one in added)
        if is_bounded:
            self._require_bearable(head.size + size)
            self._require_few(len(head.ids) + len(added))
        pieces, gone, items = list(head.pieces), list[Piece](), list(added)
        if items and pieces and pieces[-1].size + size <= PIECE_BYTES:
            gone = [pieces.pop()]
            items = [*await self._read(found, gone[0], None), *items]
        beside: Mapping[str, bytes] = {}
        if items:
            piece, beside = self._piece(found, items)
            pieces.append(piece)
        longer = msgspec.structs.replace(head, pieces=pieces)
        return longer, self._change(found, longer, beside, gone=gone)

    def _piece(self, found: _Found, items: Sequence[Item]) -> tuple[Piece, Mapping[str, bytes]]:
        """A piece with a new name, and its sealed record by name."""
        piece = Piece(secrets.token_hex(16), [one.id for one in items], sum(len(one.given) + 1 for one in items))
        name = _piece_name(found, piece)
        return piece, {name: self._seal.close(found.tenant, name, join_items([one.given for one in items]))}

    def _change(
        self,
        found: _Found,
        head: Head,
        beside: Mapping[str, bytes] | None = None,
        *,
        gone: Sequence[Piece] = (),
        erases: bool = False,
    ) -> Change:
        beside = beside or {}
        names = [_piece_name(found, piece) for piece in head.pieces]
        return Change(
            found.name,
            found.sealed,
            self._seal.close(found.tenant, found.name, msgspec.msgpack.encode(head)),
            beside,
            gone=[_piece_name(found, piece) for piece in gone],
            renewed=[name for name in names if name not in beside],
            erases=erases,
            owner=pseudonym(found.tenant),
        )

    async def _found(self, tenant: str, conversation_id: str, seconds: float | None = None) -> _Found:
        name = _name(tenant, conversation_id)
        sealed = await self._store.get(name, seconds) if self._seconds else None
        plain = None if sealed is None else self._seal.open(tenant, name, sealed)
        if sealed is None or plain is None:
            raise no_conversation(conversation_id)
        head = msgspec.msgpack.decode(plain, type=Head)
        return _Found(conversation_id, tenant, name, sealed, head)

    async def _read(self, found: _Found, piece: Piece, seconds: float | None) -> list[Item]:
        name = _piece_name(found, piece)
        sealed = await self._store.get(name, seconds)
        plain = None if sealed is None else self._seal.open(found.tenant, name, sealed)
        if plain is None:
            if await self._store.swap(_removal(found), self._seconds):  # one piece was evicted: drop the rest too
                raise no_conversation(found.conversation_id)
            raise _Changed
        return [Item(*one) for one in zip(piece.ids, split_items(plain), strict=True)]

    async def _renew(self, name: str, holder: bytes) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(StoreDown):
                await self._locks.swap(Change(name, holder, holder), LEASE_SECONDS)

    def _require_bearable(self, size: int) -> None:
        if size > self._most_bytes:
            raise BodyTooLarge(
                f"This conversation is larger than {self._most_bytes:,} bytes: begin a new one, or raise "
                "server.max_body_megabytes in breakeven.yaml.",
                code="body_too_large",
            )

    def _require_few(self, count: int) -> None:
        if count > self._most_items:
            raise InvalidRequest(
                f"A conversation has at most {self._most_items:,} items: begin a new one.", code="too_many_items"
            )


def no_conversation(conversation_id: str) -> NotFound:
    return NotFound(
        f"Conversation with id {conversation_id[:100]!r} not found: it is not kept here for this key, or not any more "
        "(it was deleted, unused for too long, or had to make room). Ask a provider for its own conversations.",
        param="conversation_id",
        code="not_found",
    )


def no_item(item_id: str) -> NotFound:
    return NotFound(
        f"Item with id {item_id[:100]!r} not found in this conversation.", param="item_id", code="not_found"
    )


def _removal(found: _Found) -> Change:
    pieces = [_piece_name(found, piece) for piece in found.head.pieces]
    return Change(found.name, found.sealed, None, gone=pieces, erases=True)


def _name(tenant: str, what: str) -> str:
    """Names of different tenants never coincide, nor with those of kept responses."""
    return hashlib.sha256(f"conversation\0{tenant}\0{what}".encode()).hexdigest()


def _piece_name(found: _Found, piece: Piece) -> str:
    return _name(found.tenant, f"{found.conversation_id}/{piece.name}")
