"""Checks that a home has the pepper its database's keys were created with; with another, no key would be valid."""

import os

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access.keys import hash_key
from gateway.config.home import Home
from gateway.errors import StateError
from gateway.storage.tables.administration import api_keys, audit_log

MARK_DIGITS = 8


def pepper_mark(pepper: bytes) -> str:
    """Identifies a pepper in the audit log, for each key created with it, without revealing the pepper."""
    return hash_key(pepper, "mark").hex()[:MARK_DIGITS]


async def require_pepper(database: AsyncEngine, home: Home) -> None:
    """Raises StateError if there are keys but no pepper here. Without keys none is needed: the first key creates it."""
    if home.has_pepper or not await _has_keys(database):
        return
    if home.has_pepper:  # a process that just created the first keys created it before them
        return
    file = home.pepper_file
    raise StateError(
        f"{file} is not there, and the API keys of this database were made with it: restore it from a backup, or set "
        "BREAKEVEN_PEPPER to what the home has that made them. If it is lost for good, every key has to be made anew: "
        f"`openssl rand -hex 32 > {file}`, then `breakeven keys create`"
    )


async def require_same_pepper(database: AsyncEngine, home: Home) -> None:
    """Raises StateError if keys of this database were created with a pepper, but none with this home's.

    A key older than the audit log's pepper marks may be this home's.
    """
    made = audit_log.c.action.in_(("key.create", "key.rotate"))
    ours = audit_log.c.detail.contains(_named(pepper_mark(home.pepper())))
    perhaps_ours = made & (ours | ~audit_log.c.detail.contains(_named("")))
    async with database.connect() as connection:
        if await _has(connection, perhaps_ours) or not await _has(connection, made):
            return
    given = "BREAKEVEN_PEPPER" if os.environ.get("BREAKEVEN_PEPPER") else str(home.pepper_file)
    raise StateError(
        f"{given} is not what the API keys of this database were made with, so that none of them would be known: take "
        "that of the home that made them (its file `pepper`, or its BREAKEVEN_PEPPER), or give this home a database of "
        "its own. If it is lost for good, every key has to be made anew: `breakeven keys create`"
    )


def _named(mark: str) -> str:
    """The start of a record's detail that names this mark; any mark if empty."""
    return f'"pepper": "{mark}'


async def _has(connection: AsyncConnection, wanted: ColumnElement[bool]) -> bool:
    """Whether the audit log has a matching record."""
    return (await connection.execute(select(audit_log.c.sequence).where(wanted).limit(1))).first() is not None


async def _has_keys(database: AsyncEngine) -> bool:
    async with database.connect() as connection:
        return (await connection.execute(select(api_keys.c.id).limit(1))).first() is not None
