"""A gateway with real routers and a SQLite database of the demonstration's entries, the web UI, and Chromium."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver

from dashboards.security import COOKIE
from gateway.cli.demo.month import DemoMonth, write_demo_month
from gateway.config.home import Home
from tests.browser.pictures import open_browser
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 900
START_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Running:
    """Base URLs without a trailing slash, and the keys of each role."""

    gateway: str
    ui: str
    month: DemoMonth

    def ask(self, path: str, key: str | None = None) -> Any:
        headers = {"authorization": f"Bearer {key or self.month.owner_key}"}
        answer = httpx.get(f"{self.gateway}{path}", headers=headers, timeout=120, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def put(self, path: str, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {self.month.owner_key}"}
        answer = httpx.put(f"{self.gateway}{path}", json=body, headers=headers, timeout=120, trust_env=False)
        answer.raise_for_status()
        return answer.json()


def ui_command(gateway: str, port: int) -> list[str]:
    """The web UI with long timeouts: on a busy machine a report may take minutes."""
    patience = ["--answer-seconds", f"{START_SECONDS:.0f}"]
    return [sys.executable, "-m", "dashboards", "--gateway", gateway, "--port", str(port), *patience]


@contextlib.contextmanager
def child(command: list[str], url: str, log: Path, environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A process, from its first answer at `url` until the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(url, timeout=60, trust_env=False)
                break
            assert process.poll() is None, f"{command} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{command} does not answer:\n{log.read_text()}"
            time.sleep(0.2)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()


# Scoped to the package, not the session, to free the core and memory for later tests.
@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("browser")
    month = asyncio.run(write_demo_month(Home(home), now=datetime.now(UTC), requests=REQUESTS))
    assert month is not None
    gateway_port, ui_port = free_port(), free_port()
    gateway, ui = f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{ui_port}"
    serve = [sys.executable, "-m", "tests.browser.gateway_process", str(month.home.root), str(gateway_port)]
    pages = ui_command(gateway, ui_port)
    with (
        child(serve, f"{gateway}/healthz", home / "gateway.log", {}),
        child(pages, f"{ui}/ui/healthz", home / "ui.log", {}),
    ):
        yield Running(gateway, ui, month)


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    try:
        browser = open_browser(profile=str(tmp_path_factory.mktemp("profile")))
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome, running: Running) -> Iterator[webdriver.Chrome]:
    """A browser signed in as the owner, on no page yet. Afterwards it checks that no other host was contacted, and that
    the console is empty."""
    chromium.get(f"{running.ui}/ui/healthz")
    chromium.delete_all_cookies()
    cookie = {
        "name": COOKIE,
        "value": begin_session(running.ui, running.month.owner_key),
        "url": running.ui,
        "path": "/ui",
    }
    chromium.execute_cdp_cmd("Network.setCookie", {**cookie, "httpOnly": True, "sameSite": "Lax"})
    drain(chromium)
    yield chromium
    assert not foreign_requests(chromium, running.ui), "a request left the host"
    assert not console_errors(chromium), "the console has errors"


def begin_session(url: str, key: str) -> str:
    """Signs in through the form without a browser, which would then draw the overview's charts in every test."""
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        token = re.search(r'name="token" value="([^"]+)"', client.get("/ui/sign-in").text)
        assert token is not None
        given = {"key": key, "token": token[1]}
        return client.post("/ui/sign-in", data=given).cookies[COOKIE]


def drain(browser: webdriver.Chrome) -> None:
    for name in ("browser", "performance"):
        browser.get_log(name)


def foreign_requests(browser: webdriver.Chrome, ui: str) -> list[str]:
    """All requested URLs that are not the UI's."""
    asked: list[str] = []
    for record in browser.get_log("performance"):
        event = json.loads(record["message"])["message"]
        if event["method"] == "Network.requestWillBeSent":
            asked.append(event["params"]["request"]["url"])
        elif event["method"] == "Network.webSocketCreated":
            asked.append(event["params"]["url"].replace("ws://", "http://"))
    return [url for url in asked if not url.startswith((ui, "data:", "blob:", "about:", "chrome:"))]


def console_errors(browser: webdriver.Chrome) -> list[str]:
    records = browser.get_log("browser")
    return [record["message"] for record in records if record["level"] == "SEVERE"]
