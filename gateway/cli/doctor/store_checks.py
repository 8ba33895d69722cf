"""The checks of `breakeven doctor` that open the database and Redis, which they leave as they are."""

import asyncio
from collections.abc import Iterator, Mapping

from gateway.cli.doctor.finding import Finding, attempt
from gateway.cli.known_keys import require_its_database
from gateway.cli.state import NoSchema, require_newest
from gateway.clock import now_us
from gateway.config.home import Home
from gateway.config.settings import Settings
from gateway.errors import StateError
from gateway.extras import install_command, is_installed
from gateway.instants import HOUR_US, moment_of
from gateway.storage.database import (
    lacks_its_file,
    open_database,
    require_room_for_tables,
    require_undamaged,
    require_writable,
)
from gateway.storage.pepper import require_pepper, require_same_pepper
from gateway.storage.sql.reports import SqlReports

TRIED = "{breakeven}:doctor"
TRIAL = "redis.call('INFO', 'server') return redis.call('SET', KEYS[1] .. ':beside', '', 'PX', 1000)"
"""Uses what scripts that count need: what INFO says, and a key that the script was not called with."""
SAFE_POLICIES = frozenset({"noeviction", "volatile-lru"})


def examine_stores(home: Home, settings: Settings) -> Iterator[Finding]:
    booked: list[tuple[int, int] | None] = []
    fix = "do what it says, or correct `database` in breakeven.yaml or BREAKEVEN_DATABASE_URL"
    yield attempt("database", lambda: _database(home, settings.database, booked), fix)
    yield from (_clock(one[1]) for one in booked if one and one[1] - HOUR_US > now_us())
    fix = "start it, mend what it says or correct `redis` in breakeven.yaml or BREAKEVEN_REDIS_URL"
    yield attempt("redis", lambda: _redis(settings.redis), fix)


def _clock(end_us: int) -> Finding:
    """For a clock that is behind the books: their last hour with requests ends at `end_us`."""
    last, now = moment_of(end_us - HOUR_US), moment_of(now_us())
    return Finding(
        "clock",
        False,
        f"it shows {now:%Y-%m-%d %H:%M} UTC, but the books have requests of {last:%Y-%m-%d %H:%M} UTC or later. A "
        "clock that is behind lets in keys that have expired, and spends the budgets of the wrong day or month: set "
        "it (`timedatectl`). If it is right, a clock was ahead when those requests were booked",
    )


def _database(home: Home, url: str | None, booked: list[tuple[int, int] | None]) -> str:
    """Appends to `booked` when the first and the last requests in the books were."""
    if url is None and not home.config_file.exists():
        return "made by `breakeven serve`"
    require_its_database(home)

    async def seen() -> tuple[int, int] | None:
        opened = open_database(url or home.database_url)
        try:
            try:
                await require_newest(opened)
            except NoSchema as error:
                if error.is_empty and not lacks_its_file(opened):
                    await require_room_for_tables(opened)
                raise
            await require_pepper(opened, home)
            if home.has_pepper:
                await require_same_pepper(opened, home)
            await require_undamaged(opened)
            await require_writable(opened)
            return await SqlReports(opened).first_and_last_us()
        finally:
            await opened.dispose()

    try:
        found = asyncio.run(seen())
    except NoSchema as error:
        if error.is_empty and home.journal_directory.exists():
            raise StateError(
                "reachable, but has no tables, though a gateway has served from this home: they were lost, or its "
                "address, its user or a `search_path` leads elsewhere"
            ) from error
        return f"reachable, {error}"
    booked.append(found)
    return f"reachable, with requests since {moment_of(found[0]):%Y-%m-%d}" if found else "reachable, no request yet"


def _redis(url: str | None) -> str:
    if url is None:
        return "not configured; more than one worker or replica needs it"
    if not is_installed("redis"):
        raise StateError(f"configured, but its client is not installed: {install_command('redis')}")
    from gateway.storage.redis.client import NO_CLUSTER, answering, connect_bytes, is_cluster

    async def memory() -> Mapping[str, object]:
        client = connect_bytes(url)
        try:
            async with answering():  # as workers do: a replica or a full Redis refuses writes, some users may not INFO
                if not is_cluster(client) and (await client.info("cluster")).get("cluster_enabled"):
                    raise StateError(NO_CLUSTER)
                await client.register_script(TRIAL)(keys=[TRIED])
                return await client.info("memory")
        finally:
            await client.aclose()

    seen = asyncio.run(memory())
    policy = str(seen.get("maxmemory_policy", ""))
    if seen.get("maxmemory") and policy not in SAFE_POLICIES | {""}:
        raise StateError(
            f"answers, but may drop what workers hold of budgets when it is full (`maxmemory-policy {policy}`): "
            "set `maxmemory-policy volatile-lru`, or `noeviction` if it shall refuse everything then, budgeted keys too"
        )
    return "answers and takes changes"
