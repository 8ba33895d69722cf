"""API keys: a secret is generated here, returned once, and stored only as an HMAC with the deployment's pepper."""

import asyncio
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access.keys import KeyRecord, hash_key
from gateway.clock import now_us
from gateway.instants import DAY_US, LAST_US
from gateway.storage.database import FIRST_KEYS_LOCK, lock, writing
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import Change, append_audit, append_audits
from gateway.storage.tables.administration import api_keys, litellm_keys
from gateway.storage.tables.books import daily, dimensions
from gateway.stores import LAST_DAYS, KeyChange, ListedKey, NewKey

PREFIX = "bk-"
SECRET_BYTES = 32
JSON = ("tags", "allowed_models", "limits")
"""Columns that hold JSON as text."""
RECORD = tuple(api_keys.c[field.name] for field in fields(KeyRecord))
"""The columns of a KeyRecord."""
AT_ONCE = 200
"""Keys to process before yielding to requests: whenever one key changes, all are read again."""


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
        """Their secrets, creating all keys or none; None if any key exists already, even a revoked one."""
        async with writing(self._engine) as connection:
            await lock(connection, FIRST_KEYS_LOCK)
            if (await connection.execute(select(api_keys.c.id).limit(1))).first() is not None:
                return None
            return [(await self._create(connection, one, author=author))[1] for one in new]

    async def _create(
        self, connection: AsyncConnection, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        secret = new_secret()
        made = [(new, hash_key(self._pepper, secret), limits or {})]
        [listed] = await insert_keys(connection, made, pepper=self._pepper, author=author, at_us=self._now_us())
        return listed, secret

    async def litellms(self) -> Collection[str]:
        async with self._engine.connect() as connection:
            return set((await connection.execute(select(litellm_keys.c.key_id))).scalars())

    async def has_litellms(self) -> bool:
        async with self._engine.connect() as connection:
            return (await connection.execute(select(litellm_keys.c.key_id).limit(1))).first() is not None

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        query = select(api_keys).order_by(api_keys.c.created_at_us.desc(), api_keys.c.id)
        if ids is not None:
            query = query.where(api_keys.c.id.in_(sorted(ids)))
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings()
        found: list[ListedKey] = []
        for part in rows.partitions(AT_ONCE):
            found += map(listed_key, part)
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
        """From the daily sums, so about two seconds late."""
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
        """Applies the whole change at once and records old and new values in the audit log, unless nothing changes."""
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


async def insert_keys(
    connection: AsyncConnection,
    made: Sequence[tuple[NewKey, bytes, Mapping[str, Any]]],
    *,
    pepper: bytes,
    author: str,
    at_us: int,
    was: str | None = None,
) -> Sequence[ListedKey]:
    """Inserts keys, each given with the hash of its secret and its limits. `was` names the origin of secrets that were
    not generated here."""
    rows = [_row(*one, author=author, at_us=at_us) for one in made]
    public = {"pepper": pepper_mark(pepper)} | ({} if was is None else {"secret": was})
    await connection.execute(api_keys.insert(), rows)
    changes = [Change("key.create", row["id"], detail=json.dumps(_shown(row) | public, sort_keys=True)) for row in rows]
    await append_audits(connection, changes, at_us=at_us, actor=author)
    return [listed_key(row) for row in rows]


def _row(new: NewKey, key_hash: bytes, limits: Mapping[str, Any], *, author: str, at_us: int) -> dict[str, Any]:
    return {
        "id": f"key_{secrets.token_hex(8)}",
        "name": new.name,
        "hash": key_hash,
        "role": new.role,
        "team": new.team,
        "project": new.project,
        "tags": json.dumps(list(new.tags)),
        "allowed_models": None if new.allowed_models is None else json.dumps(list(new.allowed_models)),
        "limits": json.dumps(dict(limits)),
        "created_at_us": at_us,
        "created_by": author,
        "expires_at_us": new.expires_at_us,
        "revoked_at_us": None,
        "keeps_bodies": new.keeps_bodies,
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("hash", "created_at_us", "created_by")}


def _named(row: Mapping[Any, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: json.loads(row[name]) if name in JSON and row[name] is not None else row[name] for name in names}


def _stored(name: str, value: Any) -> Any:
    return json.dumps(value) if name in JSON and value is not None else value


def listed_key(row: Mapping[Any, Any]) -> ListedKey:
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
        None if expires_at_us is None else min(expires_at_us, LAST_US),  # earlier versions accepted any number
        revoked_at_us,
        bool(keeps_bodies),
    )
