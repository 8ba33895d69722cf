"""`breakeven doctor`: one line a check, and what to do where something is wrong."""

import asyncio
import contextlib
import json
import os
import re
import socket
import sqlite3
from pathlib import Path
from threading import Thread
from typing import Any

import aiosqlite.core
import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.address import remember_address
from gateway.cli.doctor import PROXIES, Finding, examine, gateway_url
from gateway.cli.state import open_state
from gateway.config.home import Home, create_home
from gateway.config.providers import load_providers
from gateway.instants import HOUR_US
from gateway.limits.counters import CountersDown
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.counters import RedisCounters, connect
from gateway.storage.sql.notices import SqlNotices
from gateway.stores import NewKey
from tests.homes import new_home
from tests.newest_schema import make_newest_file
from tests.redis_server import RedisServer
from tests.unit.gateway.cli.doctor.examined import found, found_beside
from tests.waiting import wait_until
from tests.webhook_receiver import webhook_receiver


def test_before_the_first_start_only_the_gateway_is_missing(home: Home) -> None:
    checks = found(home)
    assert [name for name, one in checks.items() if not one.is_ok and one.fix] == ["gateway"]
    assert "nothing answers at http://127.0.0.1:" in checks["gateway"].detail
    assert "`breakeven serve`" in checks["state"].detail


def test_before_the_first_start_addresses_in_the_environment_are_tried(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers have no other: doctor called Redis "not configured", and the database "made by `breakeven serve`"."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("BREAKEVEN_DATABASE_URL", f"postgresql://nobody@{nowhere}/none")
        monkeypatch.setenv("BREAKEVEN_REDIS_URL", f"redis://{nowhere}/0")
        monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", f"http://{nowhere}/")
        checks = found(home)
    assert "cannot use the database" in checks["database"].detail
    assert "BREAKEVEN_DATABASE_URL" in str(checks["database"].fix)
    assert "does not answer" in checks["redis"].detail
    assert "BREAKEVEN_REDIS_URL" in str(checks["redis"].fix)
    assert checks["kept responses"].detail == "in Redis"
    assert "a webhook is told" in checks["notices"].detail
    monkeypatch.setenv("BREAKEVEN_REDIS_URL", "http://here")
    wrong = found(home)["configuration"]
    assert not wrong.is_ok
    assert wrong.detail.startswith("BREAKEVEN_REDIS_URL: must begin with redis://")
    assert not home.root.exists()


def test_before_the_first_start_the_gateway_is_looked_for_where_it_would_be_started(home: Home) -> None:
    assert gateway_url(home, None) == "http://127.0.0.1:8080"
    create_home(home)
    home.config_file.write_text("server: {host: '::1', port: 9123}\n", "utf-8")
    assert gateway_url(home, None) == "http://[::1]:9123"
    assert gateway_url(home, 7) == "http://127.0.0.1:7"
    remember_address(home, "127.0.0.1", 9000)
    assert gateway_url(home, None) == "http://127.0.0.1:9000", "it may run there still"


@pytest.mark.parametrize(("library", "is_ok", "says"), [(object(), True, "compiled"), (None, False, "install g++")])
def test_it_says_whether_the_classifier_reads_natively(
    home: Home, monkeypatch: pytest.MonkeyPatch, library: object, is_ok: bool, says: str
) -> None:
    monkeypatch.setattr("gateway.cli.doctor.load_reader", lambda: library)
    reader = found(home)["native reader"]
    assert reader.is_ok is is_ok
    assert says in reader.detail
    assert reader.fix is None


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


def test_what_a_start_would_refuse_is_a_finding(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")

    async def make_key() -> None:
        async with open_state() as state:
            await state.keys.create(NewKey(name="app"), author="test")

    asyncio.run(make_key())
    home.classifier_directory.mkdir()
    history = [{"artefact": "shipped"}, {"artefact": "aaaa", "why": "adapted", "at_us": 1}]
    (home.classifier_directory / "active.json").write_text(json.dumps(history))
    monkeypatch.setenv("BREAKEVEN_PEPPER", "5a" * 32)
    checks = found(home)
    assert not checks["database"].is_ok
    assert "BREAKEVEN_PEPPER is not what the API keys of this database were made with" in checks["database"].detail
    assert not checks["classifier"].is_ok
    assert "artefacts/aaaa/manifest.json cannot be read" in checks["classifier"].detail


def test_a_file_that_cannot_be_opened_is_one_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's thread was left behind, and ended in a traceback in the middle of what doctor says."""
    new_home(home.root)
    (home.root / "breakeven.db").mkdir()
    started: list[object] = []

    def start(**options: Any) -> Thread:
        started.append(options)
        return Thread(**options)

    monkeypatch.setattr(aiosqlite.core, "Thread", start)
    assert "unable to open database file" in found(home)["database"].detail
    assert started == [], "it may outlive the event loop"


def test_a_clock_that_is_behind_the_books_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new_home(home.root)
    make_newest_file(home.root / "breakeven.db")
    hour = 1_795_687_200_000_000
    with contextlib.closing(sqlite3.connect(home.root / "breakeven.db")) as books, books:
        columns = [row[1] for row in books.execute("PRAGMA table_info(hourly)")]
        values = [hour // HOUR_US if column == "hour" else 0 for column in columns]
        books.execute(f"INSERT INTO hourly VALUES ({', '.join('?' * len(values))})", values)
    monkeypatch.setattr("gateway.cli.doctor.now_us", lambda: hour)
    assert "clock" not in found(home)
    monkeypatch.setattr("gateway.cli.doctor.now_us", lambda: hour - 1)
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


def test_it_says_whether_a_webhook_is_told_of_budgets_and_calls_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_home(home.root)
    missing = found(home)["notices"]
    assert (missing.is_ok, missing.fix) == (False, None)
    with webhook_receiver() as receiver:
        monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", receiver.url)
        told = found(home)["notices"]
    assert told.is_ok
    assert "at 80 %, 95 %, 100 % of a budget" in told.detail
    assert "T0SECRET" not in told.detail
    assert receiver.documents == []


def test_it_says_who_pays_in_full_because_nobody_marks(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> Finding | None:
        found = examine(home, "http://127.0.0.1:9")
        return next((one for one in found if one.name == "prompt caching"), None)

    new_home(home.root)
    assert told() is None, "nothing here waits for marks"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk")
    off = told()
    assert off is not None
    assert (off.is_ok, off.fix) == (False, None)
    assert "`prompt_caching: {anthropic: auto}`" in off.detail
    home.config_file.write_text(home.config_file.read_text() + "\nprompt_caching: {anthropic: auto}\n")
    on = told()
    assert on is not None
    assert on.is_ok


def test_it_says_that_a_notice_waits_since_when_and_why(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new_home(home.root)
    monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", "http://127.0.0.1:9/T0SECRET")

    async def fail() -> None:
        async with open_state() as state:
            notices = SqlNotices(state.database, now_us=lambda: 1_790_000_000_000_000)
            assert await notices.take_turn(await notices.state())
            await notices.note_failed("it answered 500")

    asyncio.run(fail())
    waiting = found(home)["notices"]
    assert not waiting.is_ok
    at = "2026-09-21 14:13 UTC"
    assert waiting.detail == f"one has waited since {at}, last tried {at}: it answered 500"
    assert waiting.fix is not None


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


def test_a_deployment_without_the_bundled_engine_does_not_need_its_packages(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in load_providers():
        monkeypatch.delenv(provider.key_env, raising=False)
    create_home(home)
    home.config_file.write_text(
        "engine: {is_enabled: false}\nbackends: {vllm: {base_url: 'http://127.0.0.1:1/v1', provider: openai}}\n"
    )
    checks = found(home)
    assert checks["extra engine"].fix is None
    assert checks["provider keys"].detail.startswith("none: only vllm can answer.")


def test_a_proxy_that_the_data_path_does_not_use_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    assert "proxy" not in found(home)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    seen = found(home)["proxy"]
    assert seen.detail.startswith("HTTPS_PROXY is set and not used")
    assert seen.fix is None


@pytest.mark.parametrize("name", ["home", "\udcff"])
def test_a_home_that_cannot_be_read_is_json_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Another user's home. Here a file of it is a folder, because root may read every file; or its name is no text."""
    (tmp_path / name / "address").mkdir(parents=True)
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / name))
    said = CliRunner().invoke(build("doctor"), ["doctor", "--json"], catch_exceptions=False)
    told = json.loads(said.stdout)
    assert (said.exit_code, told["ok"]) == (1, False)
    assert [(one["name"], one["is_ok"]) for one in told["checks"]] == [("state", False)]
    assert repr(str(tmp_path / name))[1:-1] in told["checks"][0]["detail"]


def test_what_is_wrong_with_the_configuration_is_said_once(home: Home) -> None:
    new_home(home.root)
    with home.config_file.open("a") as file:
        file.write("backends: {vllm: {base_url: 'http://127.0.0.1:1/v1'}}\n")
    assert [name for name, one in found(home).items() if "is given twice" in one.detail] == ["configuration"]


def test_a_gateway_that_is_not_ready_is_not_to_be_started_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it reached through the proxy for outgoing requests."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    checks = found_beside(home, lambda path: b'{"problems": ["no backend is up"]}', status=503)
    assert "is not ready: no backend is up" in checks["gateway"].detail
    assert "start it" not in str(checks["gateway"].fix)
    assert "engine.log" in str(checks["gateway"].fix), "most often it is the engine's first minute, which wants waiting"
    assert "without a model" in str(checks["gateway"].fix), "else the newcomer who has no key yet waits for an engine"


@pytest.mark.parametrize(
    ("answer", "is_ok", "detail"),
    [
        (b'{"rules_version": "a1b2"}', True, "deciding by rules version a1b2"),
        (b'{"warnings": ["rules.yaml is not valid here"]}', False, "but rules.yaml is not valid here"),
        (b"{}", True, "ready at"),
    ],
)
def test_a_gateway_says_by_which_rules_it_decides(home: Home, answer: bytes, is_ok: bool, detail: str) -> None:
    checks = found_beside(home, lambda path: answer)
    assert checks["gateway"].is_ok is is_ok
    assert detail in checks["gateway"].detail


@pytest.mark.parametrize(("status", "answer"), [(200, b"[]"), (404, b'{"detail": "Not Found"}')])
def test_another_service_on_its_port_is_not_taken_for_a_gateway(home: Home, status: int, answer: bytes) -> None:
    checks = found_beside(home, lambda path: answer, status=status)
    assert "is not a gateway" in checks["gateway"].detail
    assert "find out what it is" in str(checks["gateway"].fix)


def test_an_alarm_of_any_worker_is_seen(home: Home) -> None:
    create_home(home)
    labelled = b"".join(
        b'breakeven_classifier_%b{worker="%d"} %b\n' % (name, worker, b"1.0" if worker else b"0.0")
        for name in (b"drift", b"alarms")
        for worker in range(2)
    )

    checks = found_beside(home, lambda path: labelled if path == "/metrics" else b"{}")
    assert "1 alarm (drift index 1.00)" in checks["classifier"].detail
    assert not checks["classifier"].is_ok
