"""`breakeven doctor` on the database and Redis: what is wrong with them, and how it is mended."""

import asyncio
import contextlib
import os
import re
import socket
import sqlite3
from pathlib import Path

import pytest

from gateway.cli.doctor import Finding
from gateway.config.home import Home
from gateway.instants import HOUR_US
from gateway.limits.counters import CountersDown
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.counters import RedisCounters, connect
from tests.homes import new_home
from tests.newest_schema import make_newest_file
from tests.redis_server import RedisServer
from tests.unit.gateway.cli.doctor.examined import found
from tests.waiting import wait_until


def test_a_home_has_a_database_that_answers(home: Home) -> None:
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")
    home.curve_file.write_text("{", "utf-8")
    with home.config_file.open("a") as file:
        file.write("shadow_calls: {share: 0.02, judge: gpt-nope}\n")
    checks = found(home)
    assert "there is no model 'gpt-nope' here now" in checks["judge"].detail
    assert "is not a throughput curve" in checks["throughput curve"].detail
    assert checks["database"] == Finding("database", True, "reachable, no request yet", checks["database"].fix)
    assert checks["journal"].detail.startswith("synced by ")
    assert checks["journal"].fix is None
    assert checks["redis"].is_ok
    assert "not configured" in checks["redis"].detail


def test_a_clock_that_is_behind_the_books_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")
    hour = 1_795_687_200_000_000
    with contextlib.closing(sqlite3.connect(home.root / "breakeven.db")) as books, books:
        columns = [row[1] for row in books.execute("PRAGMA table_info(hourly)")]
        values = [hour // HOUR_US if column == "hour" else 0 for column in columns]
        books.execute(f"INSERT INTO hourly VALUES ({', '.join('?' * len(values))})", values)
    monkeypatch.setattr("gateway.cli.doctor.store_checks.now_us", lambda: hour)
    assert "clock" not in found(home)
    monkeypatch.setattr("gateway.cli.doctor.store_checks.now_us", lambda: hour - 1)
    behind = found(home)["clock"]
    assert (behind.is_ok, behind.fix) == (False, None), "it may be right now"
    assert "2026-11-26 09:59 UTC, but the books have requests of 2026-11-26 10:00 UTC or later" in behind.detail


def test_a_database_with_torn_pages_is_a_finding(home: Home) -> None:
    """Such a database still answers most queries, with figures that cannot be trusted."""
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")
    with (home.root / "breakeven.db").open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 512)
    torn = found(home)["database"]
    assert not torn.is_ok
    assert "breakeven.db is damaged (" in torn.detail


def test_a_database_of_a_newer_version_is_a_finding(home: Home) -> None:
    """After a downgrade. Doctor used to suggest `breakeven serve`, which refuses such a database."""
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")
    with contextlib.closing(sqlite3.connect(home.root / "breakeven.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    newer = found(home)["database"]
    assert not newer.is_ok
    assert newer.detail.startswith("its schema is 9999, of a newer Breakeven: start that version")


def test_a_database_without_tables_is_left_as_it_is(home: Home) -> None:
    """Doctor used to create the schema: a running gateway whose tables were lost then read that there are no keys."""
    new_home(home.root)
    empty = "reachable, without tables yet: `breakeven serve` makes them"
    assert found(home)["database"].detail == empty
    assert not (home.root / "breakeven.db").exists(), "made by root it would stop the start"
    (home.root / "breakeven.db").touch()
    assert found(home)["database"].detail == empty
    home.journal_directory.mkdir()
    lost = found(home)["database"]
    assert not lost.is_ok
    assert "has no tables, though a gateway has served from this home" in lost.detail


def test_what_does_not_answer_is_named_with_its_fix(home: Home) -> None:
    new_home(home.root)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with home.config_file.open("a") as file:
            file.write(f"database: postgresql+asyncpg://nobody@127.0.0.1:{taken.getsockname()[1]}/none\n")
            file.write(f"redis: redis://127.0.0.1:{taken.getsockname()[1]}/0\n")
        checks = found(home)
    assert "cannot use the database" in checks["database"].detail
    assert "does not answer (ConnectionError: Error 111 connecting to 127.0.0.1:" in checks["redis"].detail
    assert not checks["database"].is_ok
    assert not checks["redis"].is_ok


@pytest.mark.parametrize(
    ("address", "says"),
    [("rediss://127.0.0.1:9/0?ssl_ca_certs=/none", "`ssl_ca_certs`"), ("unix:///none", "No such file or directory.)")],
)
def test_a_missing_file_of_redis_is_not_told_as_its_address(
    home: Home, monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    """The client says "Error 2 connecting to 127.0.0.1:9. No such file or directory." of both."""
    monkeypatch.setenv("BREAKEVEN_REDIS_URL", address)
    told = found(home)["redis"]
    assert not told.is_ok
    assert says in told.detail


async def _told(url: str, *commands: tuple[str, ...]) -> None:
    client = connect_bytes(url)
    for command in commands:
        await client.execute_command(*command)
    await client.aclose()


def test_a_redis_that_answers_and_takes_no_changes_is_a_finding(home: Home, tmp_path: Path) -> None:
    """After a failover, keys with a budget got 503, and doctor found nothing."""
    new_home(home.root)
    with RedisServer(tmp_path) as server:
        with home.config_file.open("a") as file:
            file.write(f"redis: {server.url}\n")
        assert found(home)["redis"].detail == "answers and takes changes"
        asyncio.run(_told(server.url, ("REPLICAOF", "127.0.0.1", "1")))
        check = found(home)["redis"]
    assert not check.is_ok
    assert "Redis rejects the command: " in check.detail
    assert "read only replica" in check.detail
    assert "mend what it says" in str(check.fix)


def test_a_redis_cluster_is_told_by_doctor_and_by_a_worker(home: Home, tmp_path: Path) -> None:
    """On one node with all slots doctor found nothing and budgets counted, but no conversation was kept."""
    new_home(home.root)

    async def count(url: str) -> None:
        counters = RedisCounters(connect(url), worker="one")
        try:
            await counters.report({})
        finally:
            await counters.aclose()

    with RedisServer(tmp_path, is_cluster=True) as server:
        with home.config_file.open("a") as file:
            file.write(f"redis: {server.url}\n")
        assert "it is a Redis Cluster, whose address is written as redis+cluster://" in found(home)["redis"].detail
        for nodes_slots in ((), (("CLUSTER", "ADDSLOTS", *map(str, range(16_384))),)):
            asyncio.run(_told(server.url, *nodes_slots))
            with pytest.raises(CountersDown, match="it is a Redis Cluster"):
                asyncio.run(count(server.url))
        text = home.config_file.read_text()
        home.config_file.write_text(text.replace("redis: redis://", "redis: redis+cluster://"))
        wait_until(lambda: found(home)["redis"].detail == "answers and takes changes")


def test_a_redis_that_may_drop_what_budgets_need_is_a_finding(home: Home, tmp_path: Path) -> None:
    new_home(home.root)
    roomy, full = ("CONFIG", "SET", "maxmemory", "0"), ("CONFIG", "SET", "maxmemory", "64mb")
    with RedisServer(tmp_path) as server:
        with home.config_file.open("a") as file:
            file.write(f"redis: {server.url}\n")
        for policy, limit, is_fine in (
            ("allkeys-lru", full, False),
            ("volatile-ttl", full, False),
            ("volatile-lru", full, True),
            ("noeviction", full, True),
            ("allkeys-lru", roomy, True),
        ):
            asyncio.run(_told(server.url, limit, ("CONFIG", "SET", "maxmemory-policy", policy)))
            check = found(home)["redis"]
            assert check.is_ok is is_fine, policy
            assert is_fine or f"(`maxmemory-policy {policy}`): set `maxmemory-policy volatile-lru`" in check.detail
        asyncio.run(_told(server.url, full, ("ACL", "SETUSER", "default", "-info")))
        assert "run the 'info' command" in found(home)["redis"].detail, "every worker would be refused"
        asyncio.run(_told(server.url, ("ACL", "SETUSER", "default", "+info", "resetkeys", "~{breakeven}:doctor")))
        check = found(home)["redis"]
        assert not check.is_ok, "scripts that count use keys that they were not called with"
        assert re.search("access (at least one of the keys|a key)", check.detail), check.detail
