"""Replaced secrets of keys: until when each works, when it was last used, and whether it was withdrawn for good.

Times are from the database server's clock, if it has one, so that replicas with different clocks agree on each end.
"""

import json
from collections.abc import Callable, Collection, Mapping

from sqlalchemy import ColumnElement, case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access.keys import ReplacedSecret, hash_key
from gateway.access.rotation import NewSecret, OldSecret, Rotation
from gateway.clock import now_us
from gateway.errors import Conflict
from gateway.storage.database import shared_now_us, writing
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import append_audit
from gateway.storage.sql.keys import new_secret
from gateway.storage.tables.administration import api_keys, replaced_secrets

MOST_WORKING = 4
"""Limit on a key's older secrets that still work: a client that retries rotation without seeing the answers gets an
error."""
REMEMBERED = 8
"""How many withdrawn secrets of a key are remembered, so that their users get a precise error."""
AUTHOR, OVER = "gateway", "its time was over"


class SqlSecrets:
    """See gateway.access.rotation.SecretStore."""

    def __init__(self, engine: AsyncEngine, pepper: bytes, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._pepper = pepper
        self._now_us = now_us

    async def rotate(self, key_id: str, *, overlap_seconds: int, author: str) -> NewSecret | None:
        old, made = replaced_secrets.c, new_secret()
        async with writing(self._engine) as connection:
            key = (await connection.execute(select(api_keys).where(api_keys.c.id == key_id).with_for_update())).first()
            if key is None:
                return None
            at_us = await shared_now_us(connection, self._now_us)
            ends_at_us = at_us + overlap_seconds * 1_000_000
            _require_alive(key.name, key.revoked_at_us, key.expires_at_us, at_us)
            working = (old.key_id == key_id) & old.withdrawn_at_us.is_(None)
            if overlap_seconds:
                count = select(func.count()).where(working, old.ends_at_us > at_us)
                _require_room(key.name, (await connection.execute(count)).scalar_one())
            shortened = update(replaced_secrets).where(working, old.ends_at_us > ends_at_us)
            await connection.execute(shortened.values(ends_at_us=ends_at_us))
            row = {"hash": key.hash, "key_id": key_id, "replaced_at_us": at_us, "ends_at_us": ends_at_us}
            await connection.execute(replaced_secrets.insert().values(row))
            if not overlap_seconds:
                await connection.execute(update(replaced_secrets).where(working).values(withdrawn_at_us=at_us))
            new_hash = hash_key(self._pepper, made)
            await connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(hash=new_hash))
            await _forget(connection, key_id)
            await append_audit(
                connection,
                at_us=at_us,
                actor=author,
                action="key.rotate",
                subject=key_id,
                detail=json.dumps(
                    {
                        "overlap_seconds": overlap_seconds,
                        "old_secrets_end_at_us": ends_at_us,
                        "pepper": pepper_mark(self._pepper),
                    }
                ),
            )
        return NewSecret(made, ends_at_us)

    async def end_overlap(self, key_id: str, *, author: str) -> bool:
        """Records nothing if no older secret works."""
        old = replaced_secrets.c
        async with writing(self._engine) as connection:
            if await self._withdraw(connection, old.key_id == key_id, author=author):
                return True
            return bool((await connection.execute(select(func.count()).where(api_keys.c.id == key_id))).scalar())

    async def withdraw(self, hashes: Collection[bytes]) -> None:
        async with writing(self._engine) as connection:
            await self._withdraw(connection, replaced_secrets.c.hash.in_(hashes), author=AUTHOR, reason=OVER)

    async def _withdraw(
        self, connection: AsyncConnection, which: ColumnElement[bool], *, author: str, reason: str = ""
    ) -> bool:
        """Returns whether any was not withdrawn yet; an expired one could work again if the clock were put back."""
        old, at_us = replaced_secrets.c, await shared_now_us(connection, self._now_us)
        ended = update(replaced_secrets).where(which, old.withdrawn_at_us.is_(None))
        ends_at_us = case((old.ends_at_us > at_us, at_us), else_=old.ends_at_us)
        ended = ended.values(withdrawn_at_us=at_us, ends_at_us=ends_at_us).returning(old.key_id)
        keys = sorted(set((await connection.execute(ended)).scalars()))
        for key_id in keys:
            await append_audit(
                connection, at_us=at_us, actor=author, action="key.overlap_end", subject=key_id, reason=reason
            )
        return bool(keys)

    async def rotations(self) -> Mapping[str, Rotation]:
        old = replaced_secrets.c
        query = select(old.key_id, old.replaced_at_us, old.ends_at_us, old.last_used_at_us, old.withdrawn_at_us)
        async with self._engine.connect() as connection:
            at_us = await shared_now_us(connection, self._now_us)
            rows = (await connection.execute(query.order_by(old.replaced_at_us.desc()))).all()
        found: dict[str, Rotation] = {}
        for key_id, replaced_at_us, ends_at_us, last_used_at_us, withdrawn_at_us in rows:
            known = found.setdefault(key_id, Rotation(replaced_at_us))
            if withdrawn_at_us is None and ends_at_us > at_us:
                one = OldSecret(replaced_at_us, ends_at_us, last_used_at_us)
                found[key_id] = Rotation(known.rotated_at_us, (*known.working, one))
        return found

    async def replaced(self) -> Mapping[bytes, ReplacedSecret]:
        old = replaced_secrets.c
        query = select(old.hash, old.key_id, old.replaced_at_us, old.ends_at_us, old.withdrawn_at_us)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
            at_us = await shared_now_us(connection, self._now_us) if rows else 0
        return {
            bytes(key_hash): ReplacedSecret(
                key_id,
                replaced_at_us,
                ends_at_us,
                0.0 if withdrawn_at_us is not None else (ends_at_us - at_us) / 1e6,
                withdrawn_at_us is not None,
            )
            for key_hash, key_id, replaced_at_us, ends_at_us, withdrawn_at_us in rows
        }

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        old = replaced_secrets.c
        async with writing(self._engine) as connection:
            at_us = await shared_now_us(connection, self._now_us)
            for key_hash, seconds in sorted(seconds_ago.items()):  # in one order, so that workers cannot deadlock
                used_at_us = at_us - round(seconds * 1e6)
                is_news = old.last_used_at_us.is_(None) | (old.last_used_at_us < used_at_us)
                noted = update(replaced_secrets).where(old.hash == key_hash, is_news)
                await connection.execute(noted.values(last_used_at_us=used_at_us))


def _require_alive(name: str, revoked_at_us: int | None, expires_at_us: int | None, at_us: int) -> None:
    if revoked_at_us is not None:
        raise Conflict(f"The key {name!r} was revoked; create another key.", code="key_revoked")
    if expires_at_us is not None and expires_at_us <= at_us:
        raise Conflict(f"The key {name!r} has expired; extend its end first.", code="key_expired")


def _require_room(name: str, working: int) -> None:
    if working >= MOST_WORKING:
        raise Conflict(
            f"{working} older secrets of the key {name!r} still work; end their overlap first, or leave none "
            "(an overlap of 0).",
            code="overlap_under_way",
        )


async def _forget(connection: AsyncConnection, key_id: str) -> None:
    """Deletes withdrawn secrets, except the newest."""
    old = replaced_secrets.c
    withdrawn = (old.key_id == key_id) & old.withdrawn_at_us.is_not(None)
    newest = select(old.hash).where(withdrawn).order_by(old.replaced_at_us.desc(), old.hash).limit(REMEMBERED)
    kept = (await connection.execute(newest)).scalars().all()
    await connection.execute(delete(replaced_secrets).where(withdrawn, old.hash.not_in(kept)))
