"""API keys: a secret is made here, returned once, and kept only as an HMAC under the deployment's pepper."""

import asyncio
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access.keys import KeyRecord, hash_key, hash_litellm_digest
from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.limits.openings import Opening
from gateway.storage.database import FIRST_KEYS_LOCK, lock, writing
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import append_audit
from gateway.storage.sql.openings import set_opening
from gateway.storage.tables.administration import api_keys, litellm_keys, replaced_secrets
from gateway.storage.tables.books import daily, dimensions
from gateway.stores import LAST_DAYS, KeyChange, ListedKey, NewKey

PREFIX = "bk-"
SECRET_BYTES = 32
JSON = ("tags", "allowed_models", "limits")
"""Columns that hold JSON as text."""
RECORD = tuple(api_keys.c[field.name] for field in fields(KeyRecord))
"""A key without its secret and its limits."""
AT_ONCE = 200
"""Keys read before requests have a turn: whenever one changes all are read again."""


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


class SqlKeyStore:
    """The key store; see gateway.stores.KeyStore."""

    def __init__(self, engine: AsyncEngine, pepper: bytes, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._pepper = pepper
        self._now_us = now_us

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        async with writing(self._engine) as connection:
            return await self._create(connection, new, author=author, limits=limits)

    async def create_in_empty(self, new: Sequence[NewKey], *, author: str) -> Sequence[str] | None:
        """See gateway.composition.first_keys.EmptyKeyStore."""
        async with writing(self._engine) as connection:
            await lock(connection, FIRST_KEYS_LOCK)
            if (await connection.execute(select(api_keys.c.id).limit(1))).first() is not None:
                return None
            return [(await self._create(connection, one, author=author))[1] for one in new]

    async def _create(
        self, connection: AsyncConnection, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        secret = new_secret()
        return await self._insert(connection, new, hash_key(self._pepper, secret), author=author, limits=limits), secret

    async def take_over(
        self,
        new: NewKey,
        litellm_digest: bytes,
        *,
        author: str,
        limits: Mapping[str, Any],
        opening: tuple[str, int] | None = None,
    ) -> tuple[ListedKey, bool]:
        """The key of LiteLLM's whose SHA-256 that is, and whether it is made now: one that was taken over before stays
        as it is here, whatever became of it, but for the newer `opening`: a window and the pico-USD spent in it there.
        """
        its_hash = hash_litellm_digest(self._pepper, litellm_digest)
        async with writing(self._engine) as connection:
            await lock(connection, FIRST_KEYS_LOCK)  # two at once make nothing twice
            row = await _taken_over(connection, its_hash)
            if row is None:
                listed = await self._insert(connection, new, its_hash, author=author, limits=limits, was="LiteLLM's")
            else:
                listed = _listed(row)
            key_id, at_us = listed.record.id, self._now_us()
            if row is not None and not row["is_noted"]:
                await append_audit(connection, at_us=at_us, actor=author, action="key.take_over", subject=key_id)
            if row is None or not row["is_noted"]:
                note = {"hash": its_hash, "key_id": key_id, "at_us": at_us}
                await connection.execute(litellm_keys.insert().values(note))
            if opening is not None:
                await set_opening(connection, Opening("key", key_id, *opening), author=author, at_us=at_us)
        return listed, row is None

    async def taken_over(self, litellm_digests: Iterable[bytes]) -> Mapping[bytes, ListedKey]:
        """By these digests, the keys that were taken over before."""
        found: dict[bytes, ListedKey] = {}
        async with self._engine.connect() as connection:
            for digest in litellm_digests:
                row = await _taken_over(connection, hash_litellm_digest(self._pepper, digest))
                if row is not None:
                    found[digest] = _listed(row)
        return found

    async def litellms(self) -> Collection[str]:
        async with self._engine.connect() as connection:
            return set((await connection.execute(select(litellm_keys.c.key_id))).scalars())

    async def has_litellms(self) -> bool:
        async with self._engine.connect() as connection:
            return (await connection.execute(select(litellm_keys.c.key_id).limit(1))).first() is not None

    async def _insert(
        self,
        connection: AsyncConnection,
        new: NewKey,
        key_hash: bytes,
        *,
        author: str,
        limits: Mapping[str, Any] | None,
        was: str | None = None,
    ) -> ListedKey:
        """`was` says whose its secret is where it was not made here."""
        key_id, at_us = f"key_{secrets.token_hex(8)}", self._now_us()
        row: dict[str, Any] = {
            "id": key_id,
            "name": new.name,
            "hash": key_hash,
            "role": new.role,
            "team": new.team,
            "project": new.project,
            "tags": json.dumps(list(new.tags)),
            "allowed_models": None if new.allowed_models is None else json.dumps(list(new.allowed_models)),
            "limits": json.dumps(dict(limits or {})),
            "created_at_us": at_us,
            "created_by": author,
            "expires_at_us": new.expires_at_us,
            "revoked_at_us": None,
            "keeps_bodies": new.keeps_bodies,
        }
        public = {name: value for name, value in row.items() if name not in ("hash", "created_at_us", "created_by")}
        public |= {"pepper": pepper_mark(self._pepper)} | ({} if was is None else {"secret": was})
        await connection.execute(api_keys.insert().values(**row))
        await append_audit(
            connection,
            at_us=at_us,
            actor=author,
            action="key.create",
            subject=key_id,
            detail=json.dumps(public, sort_keys=True),
        )
        return _listed(row)

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        query = select(api_keys).order_by(api_keys.c.created_at_us.desc(), api_keys.c.id)
        if ids is not None:
            query = query.where(api_keys.c.id.in_(sorted(ids)))
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings()
        found: list[ListedKey] = []
        for part in rows.partitions(AT_ONCE):
            found += map(_listed, part)
            await asyncio.sleep(0)
        return found

    async def revoke(self, key_id: str, *, author: str) -> bool:
        """The first revocation counts; revoking again changes nothing."""
        at_us = self._now_us()
        async with writing(self._engine) as connection:
            changed = await connection.execute(
                api_keys.update()
                .where(api_keys.c.id == key_id, api_keys.c.revoked_at_us.is_(None))
                .values(revoked_at_us=at_us)
            )
            if changed.rowcount:
                await append_audit(connection, at_us=at_us, actor=author, action="key.revoke", subject=key_id)
                return True
            known = await connection.execute(select(func.count()).where(api_keys.c.id == key_id))
            return bool(known.scalar())

    async def records(self) -> Mapping[bytes, KeyRecord]:
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(api_keys.c.hash, *RECORD))
        found: dict[bytes, KeyRecord] = {}
        for part in rows.partitions(AT_ONCE):
            found.update((bytes(key_hash), _record(*columns)) for key_hash, *columns in part)
            await asyncio.sleep(0)
        return found

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        async with self._engine.connect() as connection:
            row = (await connection.execute(select(*RECORD).where(api_keys.c.hash == key_hash))).first()
        return None if row is None else _record(*row)

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(api_keys.c.id, api_keys.c.limits).where(api_keys.c.limits != "{}"))
            return {key_id: json.loads(limits) for key_id, limits in rows}

    async def last_days(self) -> Mapping[str, int]:
        """From the books' daily sums, so about two seconds late."""
        since = self._now_us() // DAY_US - LAST_DAYS
        query = (
            select(dimensions.c.key_id, func.max(daily.c.day))
            .join(daily, daily.c.dimension_id == dimensions.c.id)
            .where(daily.c.day > since, daily.c.requests > 0)
            .group_by(dimensions.c.key_id)
        )
        async with self._engine.connect() as connection:
            rows = await connection.execute(query)
        return {row[0]: row[1] for row in rows}

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        """All of it at once; what was there before is in the audit log. Changing nothing records nothing."""
        async with writing(self._engine) as connection:
            stored = await connection.execute(select(api_keys).where(api_keys.c.id == key_id).with_for_update())
            row = stored.mappings().first()
            if row is None:
                return False
            before, after = _named(row, change), json.loads(json.dumps(change))
            changed = [name for name in after if after[name] != before[name]]
            if not changed:
                return True
            values = {name: _stored(name, after[name]) for name in changed}
            await connection.execute(api_keys.update().where(api_keys.c.id == key_id).values(**values))
            both = {"before": before, "after": after}
            detail = {when: {name: one[name] for name in changed} for when, one in both.items()}
            await append_audit(
                connection,
                at_us=self._now_us(),
                actor=author,
                action="key.change",
                subject=key_id,
                detail=json.dumps(detail, sort_keys=True),
            )
        return True


async def _taken_over(connection: AsyncConnection, its_hash: bytes) -> Mapping[Any, Any] | None:
    """The key that came with that secret, if it has another by now too. It is not noted where an older version was here
    since, and took the notes away."""
    noted = select(litellm_keys.c.key_id).where(litellm_keys.c.hash == its_hash)
    key_id = (await connection.execute(noted)).scalar()
    rotated = select(replaced_secrets.c.key_id).where(replaced_secrets.c.hash == its_hash)
    unnoted = (api_keys.c.hash == its_hash) | api_keys.c.id.in_(rotated)
    known = unnoted if key_id is None else api_keys.c.id == key_id
    row = (await connection.execute(select(api_keys).where(known))).mappings().first()
    return None if row is None else {**row, "is_noted": key_id is not None}


def _named(row: Mapping[Any, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: json.loads(row[name]) if name in JSON and row[name] is not None else row[name] for name in names}


def _stored(name: str, value: Any) -> Any:
    return json.dumps(value) if name in JSON and value is not None else value


def _listed(row: Mapping[Any, Any]) -> ListedKey:
    return ListedKey(_record(*(row[column.name] for column in RECORD)), row["created_at_us"])


def _record(*columns: Any) -> KeyRecord:
    """From the columns of RECORD."""
    key_id, name, role, team, project, tags, allowed, expires_at_us, revoked_at_us, keeps_bodies = columns
    return KeyRecord(
        key_id,
        name,
        role,
        team,
        project,
        () if tags == "[]" else tuple(json.loads(tags)),
        None if allowed is None else frozenset(json.loads(allowed)),
        expires_at_us,
        revoked_at_us,
        bool(keeps_bodies),
    )
