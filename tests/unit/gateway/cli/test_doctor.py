"""`breakeven doctor`: one line a check, and what to do where something is wrong."""

import asyncio
import contextlib
import os
import socket
import sqlite3
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import text

from gateway.cli.doctor import PROXIES, Finding, examine
from gateway.cli.state import open_state
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home
from gateway.config.providers import load_providers
from gateway.errors import DatabaseDown
from gateway.kept_answers.record_store import Change
from gateway.storage.database import migrate, open_database, require_writable
from gateway.storage.redis.bytes import connect_bytes
from gateway.storage.sql.notices import SqlNotices
from gateway.storage.turns.turn_file import TurnFile
from tests.newest_schema import make_newest_file
from tests.redis_server import RedisServer
from tests.webhook_receiver import webhook_receiver


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def found(home: Home) -> dict[str, Finding]:
    """Against a port that nobody listens on: it is bound for as long as this takes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return {one.name: one for one in examine(home, f"http://127.0.0.1:{taken.getsockname()[1]}")}


def found_beside(home: Home, answer: Callable[[str], bytes], *, status: int = 200) -> dict[str, Finding]:
    """Beside a gateway that answers so to each path."""

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer(self.path))

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            return {one.name: one for one in examine(home, f"http://127.0.0.1:{server.server_port}")}
        finally:
            server.shutdown()


def test_before_the_first_start_only_the_gateway_is_missing(home: Home) -> None:
    checks = found(home)
    assert [name for name, one in checks.items() if not one.is_ok and one.fix] == ["gateway"]
    assert "nothing answers at http://127.0.0.1:" in checks["gateway"].detail
    assert "`breakeven serve`" in checks["state"].detail


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
    create_home(home)
    write_first_files(home)
    make_newest_file(home.root / "breakeven.db")
    checks = found(home)
    assert checks["database"] == Finding("database", True, "reachable, no request yet", checks["database"].fix)
    assert checks["journal"].detail.startswith("synced by ")
    assert checks["journal"].fix is None
    assert checks["redis"].is_ok
    assert "not configured" in checks["redis"].detail


def test_a_database_with_torn_pages_is_a_finding(home: Home) -> None:
    """Which answers most questions all the same, with figures that nobody should believe."""
    create_home(home)
    write_first_files(home)
    make_newest_file(home.root / "breakeven.db")
    with (home.root / "breakeven.db").open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 512)
    torn = found(home)["database"]
    assert not torn.is_ok
    assert "breakeven.db is damaged (" in torn.detail


def test_a_database_of_a_newer_version_is_a_finding(home: Home) -> None:
    """After a downgrade; it was told that `breakeven serve`, which refuses it, brings it to an older schema."""
    create_home(home)
    write_first_files(home)
    make_newest_file(home.root / "breakeven.db")
    with contextlib.closing(sqlite3.connect(home.root / "breakeven.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    newer = found(home)["database"]
    assert not newer.is_ok
    assert newer.detail.startswith("its schema is 9999, of a newer Breakeven: start that version")


def test_a_database_without_tables_is_left_as_it_is(home: Home) -> None:
    """It made the schema: a running gateway whose tables were lost then read that there are no keys any more."""
    create_home(home)
    write_first_files(home)
    assert found(home)["database"].detail == "reachable, without tables yet: `breakeven serve` makes them"
    home.journal_directory.mkdir()
    lost = found(home)["database"]
    assert not lost.is_ok
    assert "has no tables, though a gateway has served from this home" in lost.detail


def test_it_says_whether_a_webhook_is_told_of_budgets_and_calls_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_home(home)
    write_first_files(home)
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

    create_home(home)
    write_first_files(home)
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
    create_home(home)
    write_first_files(home)
    monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", "http://127.0.0.1:9/T0SECRET")

    async def fail() -> None:
        async with open_state() as state:
            notices = SqlNotices(state.database, now_us=lambda: 1_790_000_000_000_000)
            assert await notices.take_turn(await notices.state())
            await notices.note_failed("it answered 500")

    asyncio.run(fail())
    waiting = found(home)["notices"]
    assert not waiting.is_ok
    assert waiting.detail == "one waits since 2026-09-21 14:13 UTC, last tried 2026-09-21 14:13 UTC: it answered 500"
    assert waiting.fix is not None


def test_what_does_not_answer_is_named_with_its_fix(home: Home) -> None:
    create_home(home)
    write_first_files(home)
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


async def _told(url: str, *commands: tuple[str, ...]) -> None:
    client = connect_bytes(url)
    for command in commands:
        await client.execute_command(*command)
    await client.aclose()


def test_a_redis_that_answers_and_takes_no_changes_is_a_finding(home: Home, tmp_path: Path) -> None:
    """After a failover budgeted keys heard 503, and doctor found nothing."""
    create_home(home)
    write_first_files(home)
    with RedisServer(tmp_path) as server:
        with home.config_file.open("a") as file:
            file.write(f"redis: {server.url}\n")
        assert found(home)["redis"].detail == "answers and takes changes"
        asyncio.run(_told(server.url, ("REPLICAOF", "127.0.0.1", "1")))
        check = found(home)["redis"]
    assert not check.is_ok
    assert "Redis refuses what it is asked: " in check.detail
    assert "read only replica" in check.detail


def test_a_redis_that_may_drop_what_budgets_need_is_a_finding(home: Home, tmp_path: Path) -> None:
    create_home(home)
    write_first_files(home)
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
            assert is_fine or f"(`maxmemory-policy {policy}`): set `maxmemory-policy noeviction`" in check.detail
        asyncio.run(_told(server.url, full, ("ACL", "SETUSER", "default", "-info")))
        assert found(home)["redis"].detail == "answers and takes changes", "its user may not ask for the policy"


def test_a_home_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = found(Home(tmp_path / "file" / "home"))
    assert not checks["state"].is_ok
    assert "set BREAKEVEN_HOME" in str(checks["state"].fix)


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


def test_what_is_wrong_with_the_configuration_is_said_once(home: Home) -> None:
    create_home(home)
    write_first_files(home)
    with home.config_file.open("a") as file:
        file.write("backends: {vllm: {base_url: 'http://127.0.0.1:1/v1'}}\n")
    assert [name for name, one in found(home).items() if "is given twice" in one.detail] == ["configuration"]


async def test_a_database_that_can_only_be_read_is_no_database_that_works(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"
    await migrate(url)
    engine = open_database(url)
    await require_writable(engine)
    async with engine.connect() as connection:
        await connection.execute(text("PRAGMA query_only = ON"))
    with pytest.raises(DatabaseDown, match="readonly database"):
        await require_writable(engine)
    await engine.dispose()


def test_a_journal_of_somebody_else_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    create_home(home)
    home.journal_directory.mkdir(mode=0o500)

    def access(path: Path, mode: int) -> bool:
        return path != home.journal_directory  # to root everything is open

    monkeypatch.setattr(os, "access", access)
    assert found(home)["journal"].detail.endswith("journal is not writable")


KEPT = "kept responses"


def test_kept_responses_that_are_damaged_are_a_finding(home: Home) -> None:
    create_home(home)
    assert found(home)[KEPT] == Finding(KEPT, True, "none kept yet")
    home.turns_file.write_bytes(b"not a database" * 500)
    home.turns_file.chmod(0o600)
    finding = found(home)[KEPT]
    assert not finding.is_ok
    assert finding.detail.startswith(f"{home.turns_file} is damaged or of another version")
    assert finding.fix is not None


def test_kept_conversations_are_looked_at_too(home: Home) -> None:
    name = "kept conversations"
    create_home(home)
    assert found(home)[name] == Finding(name, True, "none kept yet")
    file = TurnFile(home.conversations_file, max_bytes=1 << 20, longest_seconds=60)
    assert file.swap(Change("head", None, b"1", beside={"a": b"a"}), 60)
    assert found(home)[name].detail.startswith(f"2 records in {home.conversations_file}, 0 of 537 MB")
    file.close()
    home.conversations_file.write_bytes(b"not a database" * 500)
    finding = found(home)[name]
    assert (finding.is_ok, "conversations may be lost at the next start" in (finding.fix or "")) == (False, True)


@pytest.mark.parametrize(
    ("setting", "detail"),
    [
        ("redis: redis://localhost:1/0", "in Redis"),
        ("kept_answers: {disk_megabytes: 0}", "in no file, as `kept_answers` in breakeven.yaml says"),
        ("kept_answers: {response_hours: 0}", "in no file, as `kept_answers` in breakeven.yaml says"),
    ],
)
def test_kept_responses_are_looked_for_where_they_are_kept(home: Home, setting: str, detail: str) -> None:
    create_home(home)
    write_first_files(home)
    with home.config_file.open("a") as config:
        config.write(f"\n{setting}\n")
    home.turns_file.write_bytes(b"left by an earlier configuration")
    assert found(home)[KEPT] == Finding(KEPT, True, detail)


def test_a_gateway_that_is_not_ready_is_not_to_be_started_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it asked through the proxy that leads to the rest of the world."""
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


def test_an_alarm_of_any_worker_is_seen(home: Home) -> None:
    create_home(home)
    labelled = b"".join(
        b'breakeven_classifier_%b{worker="%d"} %b\n' % (name, worker, b"1.0" if worker else b"0.0")
        for name in (b"drift", b"alarms")
        for worker in range(2)
    )

    checks = found_beside(home, lambda path: labelled if path == "/metrics" else b"{}")
    assert "1 alarms (drift index 1.00)" in checks["classifier"].detail
    assert not checks["classifier"].is_ok


CONFIGURED = """
engine: {is_enabled: false}
backends:
  mine: {base_url: "BASE", KEYS}
"""
RULES = """
version: 1
models: {m: {backend: mine, upstream_model: big, context_window: 8192}}
rules: [{name: all, choose: {from: any}}]
"""


@contextlib.contextmanager
def endpoint(answer: Callable[[str, str | None], tuple[int, str]]) -> Generator[str]:
    """What it answers to each path and authorization; yields its origin."""

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, self.headers["authorization"])
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def told_of_backends(home: Home, base: str, keys: str = "api_key_env: MY_KEY") -> dict[str, Finding]:
    create_home(home)
    home.config_file.write_text(CONFIGURED.replace("BASE", base).replace("KEYS", keys))
    home.rules_file.write_text(RULES)
    checks = {one.name: one for one in examine(home, "http://127.0.0.1:1", asks=True)}
    assert checks["configuration"].is_ok, checks["configuration"].detail
    return {name: one for name, one in checks.items() if name.startswith("backend ")}


def test_a_backend_is_asked_only_when_told_to(home: Home) -> None:
    asked: list[str] = []

    def answer(path: str, key: str | None) -> tuple[int, str]:
        asked.append(path)
        return 200, '{"data": [{"id": "big"}]}'

    with endpoint(answer) as origin:
        assert told_of_backends(home, f"{origin}/v1", "provider: mine")["backend mine"].is_ok
        assert asked == ["/v1/models"]
        list(examine(home, "http://127.0.0.1:1"))
        assert asked == ["/v1/models"]


def test_each_key_is_tried_and_a_public_list_is_said_to_show_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(path: str, key: str | None) -> tuple[int, str]:
        return (401, "{}") if key == "Bearer old" else (200, '{"data": [{"id": "big"}]}')

    monkeypatch.setenv("GOOD", "new")
    monkeypatch.setenv("BAD", "old")
    with endpoint(answer) as origin:
        found = told_of_backends(home, f"{origin}/v1", "keys: [{env: GOOD}, {env: BAD}]")
    assert found["backend mine (GOOD)"].is_ok
    assert "the key is not tried" in found["backend mine (GOOD)"].detail
    assert "401: it refuses the key" in found["backend mine (BAD)"].detail
    assert "the key is in BAD" in found["backend mine (BAD)"].detail
    assert found["backend mine (BAD)"].fix is not None


@pytest.mark.parametrize(
    ("base", "says", "has_fix"),
    [
        ("{origin}", "answers 404: base_url is wrong (most end in /v1)", True),
        ("{origin}/page", "a page or another service", True),
        ("{origin}/other", "its 1 models lack big", False),
        ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/models: mine is unreachable", True),
    ],
)
def test_what_is_wrong_with_a_backend_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch, base: str, says: str, *, has_fix: bool
) -> None:
    pages = {"/page/models": "<html>", "/other/models": '[{"id": "models/small"}]'}
    monkeypatch.setenv("MY_KEY", "k")
    with endpoint(lambda path, _: (200, pages[path]) if path in pages else (404, "{}")) as origin:
        found = told_of_backends(home, base.format(origin=origin))["backend mine"]
    assert not found.is_ok
    assert says in found.detail
    assert (found.fix is not None) is has_fix
