"""Turns in a store: encrypted with their tenant's secret, so that reading the store reveals nothing, and expiring some
time after they were last referred to. Knows no request, no store and no HTTP."""

import hashlib
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gateway.kept_answers.record_store import pseudonym
from gateway.kept_answers.sealing import Seal

TRIES: Final = 10
BRIEF_SECONDS: Final = 600.0
"""How long a response with `store: false` can be fetched that was written in the background, as at OpenAI."""
_BRIEF: Final = "\0brief"
"""Behind the id, so that reading one does not make it last as long as others."""


class TurnStore(Protocol):
    """Bytes by name, for a time. May raise StoreDown, and soon."""

    async def get(self, name: str, seconds: float) -> bytes | None:
        """The value of that name, or None if there is none or it expired. Renews its expiry to `seconds` from now."""
        ...

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        """`owner` is as in Change."""
        ...

    async def delete(self, name: str, *, owner: str = "") -> bool:
        """Whether there was anything."""
        ...


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """A response as its caller received it, its input items, and the response or conversation that it continued. One
    that `is_open` is still being written (open_responses.py), one that `is_brief` is kept for BRIEF_SECONDS."""

    response: bytes
    items: bytes
    previous: str | None
    conversation_id: str | None = None
    is_open: bool = False
    is_brief: bool = False


class KeptTurns:
    """`secret` returns a tenant's 32 bytes; if `seconds` is 0, nothing is kept."""

    def __init__(self, store: TurnStore, secret: Callable[[str], bytes], seconds: float) -> None:
        self.store = store
        self._seal = Seal(secret)
        self.seconds = seconds
        self.again_seconds = 1.0

    async def put(self, tenant: str, response_id: str, turn: Turn) -> None:
        """Raises StoreDown."""
        called, seconds = (response_id + _BRIEF, BRIEF_SECONDS) if turn.is_brief else (response_id, self.seconds)
        await self.put_sealed(tenant, called, msgspec.msgpack.encode(turn), seconds)

    async def find(self, tenant: str, response_id: str) -> Turn | None:
        """A kept response of this tenant. Raises StoreDown."""
        if not self.seconds:
            return None
        plain = await self.find_sealed(tenant, response_id, self.seconds)
        if plain is None:
            plain = await self.find_sealed(tenant, response_id + _BRIEF, BRIEF_SECONDS)
        return None if plain is None else msgspec.msgpack.decode(plain, type=Turn)

    async def put_sealed(self, tenant: str, called: str, plain: bytes, seconds: float) -> None:
        """Any record, encrypted. Raises StoreDown."""
        name = name_of(tenant, called)
        await self.store.put(name, self._seal.close(tenant, name, plain), seconds, owner=pseudonym(tenant))

    async def find_sealed(self, tenant: str, called: str, seconds: float) -> bytes | None:
        """A record, kept for `seconds` from now. Raises StoreDown."""
        name = name_of(tenant, called)
        sealed = await self.store.get(name, seconds)
        return None if sealed is None else self._seal.open(tenant, name, sealed)

    async def mark_of(self, tenant: str, response_id: str) -> bytes | None:
        """Who cancelled or deleted a response while it was written left one (open_responses.py). Raises StoreDown."""
        return await self.store.get(mark_name(tenant, response_id), self.seconds)

    async def forget(self, tenant: str, response_id: str) -> bool:
        """Deletes a response, or another record; False if there was none. Raises StoreDown."""
        owner, brief = pseudonym(tenant), name_of(tenant, response_id + _BRIEF)
        return await self.store.delete(name_of(tenant, response_id), owner=owner) or await self.store.delete(
            brief, owner=owner
        )


def name_of(tenant: str, response_id: str) -> str:
    """Names of different tenants never coincide."""
    return hashlib.sha256(f"{tenant}\0{response_id}".encode()).hexdigest()


def mark_name(tenant: str, response_id: str) -> str:
    return name_of(tenant, f"{response_id}\0unwanted")
