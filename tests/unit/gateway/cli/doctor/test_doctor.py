"""`breakeven doctor`: one line a check, and what to do where something is wrong."""

import asyncio
import json
import socket
import sysconfig
from pathlib import Path
from threading import Thread
from typing import Any

import aiosqlite.core
import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.address import remember_address
from gateway.cli.doctor import PROXIES, gateway_url
from gateway.cli.state import open_state
from gateway.config.home import Home, create_home
from gateway.config.providers import load_providers
from gateway.stores import NewKey
from tests.homes import new_home
from tests.newest_schema import make_newest_file
from tests.unit.gateway.cli.doctor.examined import found, found_beside


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
    assert checks["kept responses"].detail == "none: with Redis, only once `kept_answers.response_hours` is set"
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


@pytest.mark.parametrize(
    ("prefix", "arguments", "is_told"),
    [
        ("/usr", "'--enable-shared'", False),
        ("/usr/local", "'--enable-shared' '--enable-optimizations' '--with-lto'", False),
        ("/home/ada/.pyenv/versions/3.12.4", "'--enable-shared'", True),
        ("/home/ada/.pyenv/versions/3.12.4", None, True),
    ],
)
def test_a_python_without_optimisation_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch, prefix: str, arguments: str | None, is_told: bool
) -> None:
    monkeypatch.setattr("sys.base_prefix", prefix)
    monkeypatch.setitem(sysconfig.get_config_vars(), "CONFIG_ARGS", arguments)
    told = found(home).get("Python's build")
    assert (told is not None) is is_told
    assert told is None or (not told.is_ok and told.fix is None and "make PYTHON=" in told.detail)


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
