"""Imports LiteLLM's keys and budgets, many per transaction. Each key is imported only once, even if deleted since."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access.keys import hash_litellm_digest
from gateway.clock import now_us
from gateway.limits.openings import Opening
from gateway.storage.database import FIRST_KEYS_LOCK, lock, writing
from gateway.storage.sql.audit import Change, append_audits
from gateway.storage.sql.budgets import set_budgets
from gateway.storage.sql.keys import insert_keys, listed_key
from gateway.storage.sql.openings import set_openings
from gateway.storage.tables.administration import api_keys, litellm_keys, replaced_secrets
from gateway.stores import Budget, ListedKey, NewKey

Row = Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class LiteLLMKey:
    """`digest` is the SHA-256 of its secret; `opening` is (window, pico-USD spent in it at LiteLLM)."""

    digest: bytes = field(repr=False)
    new: NewKey
    limits: Mapping[str, Any]
    opening: tuple[str, int] | None = None


class SqlLiteLLMKeys:
    """Each call imports everything it is given or nothing; callers split thousands of keys into batches."""

    def __init__(self, engine: AsyncEngine, pepper: bytes) -> None:
        self._engine = engine
        self._pepper = pepper

    async def find(self, digests: Collection[bytes]) -> Mapping[bytes, ListedKey]:
        """The keys that exist here, by LiteLLM's digests."""
        async with self._engine.connect() as connection:
            found, _ = await self._find(connection, digests)
        return {digest: listed_key(row) for digest, row in found.items()}

    async def take_over(self, keys: Sequence[LiteLLMKey], *, author: str) -> Mapping[bytes, tuple[ListedKey, bool]]:
        """Digest -> (key, whether it was created now). A key imported before stays as it is, except for the newer
        `opening`."""
        at_us = now_us()
        async with writing(self._engine) as connection:
            await lock(connection, FIRST_KEYS_LOCK)  # two concurrent imports must not create a key twice
            found, noted = await self._find(connection, [one.digest for one in keys])
            here = {digest: listed_key(row) for digest, row in found.items()}
            made = await self._make(connection, [one for one in keys if one.digest not in here], author, at_us)
            unnoted = [Change("key.take_over", one.record.id) for digest, one in here.items() if digest not in noted]
            if unnoted:
                await append_audits(connection, unnoted, at_us=at_us, actor=author)
            whole = {**here, **made}
            notes = [
                {"hash": self._hash(digest), "key_id": one.record.id, "at_us": at_us}
                for digest, one in whole.items()
                if digest not in noted
            ]
            if notes:
                await connection.execute(litellm_keys.insert(), notes)
            opened = [Opening("key", whole[one.digest].record.id, *one.opening) for one in keys if one.opening]
            await set_openings(connection, opened, author=author, at_us=at_us)
        return {digest: (one, digest in made) for digest, one in whole.items()}

    async def set_budgets(self, budgets: Sequence[Budget], openings: Sequence[Opening], *, author: str) -> None:
        """Sets budgets of teams and projects together with their previous spending: no worker sees one without the
        other."""
        async with writing(self._engine) as connection:
            await set_openings(connection, openings, author=author, at_us=now_us())
            await set_budgets(connection, budgets)

    async def _make(
        self, connection: AsyncConnection, keys: Sequence[LiteLLMKey], author: str, at_us: int
    ) -> Mapping[bytes, ListedKey]:
        if not keys:
            return {}
        new = [(one.new, self._hash(one.digest), one.limits) for one in keys]
        listed = await insert_keys(connection, new, pepper=self._pepper, author=author, at_us=at_us, was="LiteLLM's")
        return dict(zip((one.digest for one in keys), listed, strict=True))

    def _hash(self, digest: bytes) -> bytes:
        return hash_litellm_digest(self._pepper, digest)

    async def _find(
        self, connection: AsyncConnection, digests: Collection[bytes]
    ) -> tuple[Mapping[bytes, Row], Collection[bytes]]:
        """The keys imported with these secrets, even if rotated since, and the digests that are recorded as imported.
        An unrecorded one may be imported too: a downgrade removes the records."""
        hashes = {self._hash(digest): digest for digest in digests}
        noted = await _key_ids(connection, litellm_keys, hashes)
        unnoted = hashes.keys() - noted.keys()
        ids = {**await _key_ids(connection, replaced_secrets, unnoted), **noted}
        known = api_keys.c.hash.in_(unnoted) | api_keys.c.id.in_(set(ids.values()))
        rows = (await connection.execute(select(api_keys).where(known))).mappings().all()
        by_id, by_hash = {row["id"]: row for row in rows}, {bytes(row["hash"]): row for row in rows}
        found: dict[bytes, Row] = {}
        for its_hash, digest in hashes.items():
            row = by_id.get(ids[its_hash]) if its_hash in ids else by_hash.get(its_hash)
            if row is not None:
                found[digest] = row
        return found, {hashes[one] for one in noted}


async def _key_ids(connection: AsyncConnection, table: Table, hashes: Collection[bytes]) -> Mapping[bytes, str]:
    rows = await connection.execute(select(table.c.hash, table.c.key_id).where(table.c.hash.in_(hashes)))
    return {bytes(key_hash): key_id for key_hash, key_id in rows}
