"""The web UI stopped, killed and started again: no request of an app is affected, and nobody has to sign in again."""

import contextlib
import signal
import threading
from pathlib import Path

import httpx
import pytest

from dashboards.security import COOKIE
from gateway.routing.plans import SIMULATE_TAG
from tests.browser.conftest import Running, begin_session, child, ui_command
from tests.ports import free_port

pytestmark = pytest.mark.integration
REQUESTS = 3


def test_the_ui_hangs_dies_and_comes_back_and_no_app_notices(running: Running, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [*ui_command(running.gateway, port), "--state", str(tmp_path / "sessions")]
    with httpx.Client(trust_env=False, timeout=120) as browser:
        with child(command, f"{url}/ui/healthz", tmp_path / "ui.log", {}) as process:
            browser.cookies.set(COOKIE, begin_session(url, running.month.viewer_key))
            process.send_signal(signal.SIGSTOP)
            waiting = threading.Thread(target=ask, args=(url,), daemon=True)
            waiting.start()
            try:
                assert answers(running) == [200] * REQUESTS
                assert waiting.is_alive(), "the UI answered although it was stopped"
            finally:
                process.kill()
            process.wait(60)
            assert answers(running) == [200] * REQUESTS
        with child(command, f"{url}/ui/healthz", tmp_path / "ui.log", {}):
            page = browser.get(f"{url}/ui/models")
    assert page.status_code == 200
    assert "demo-viewer" in page.text, "the session outlived the process"


def answers(running: Running) -> list[int]:
    """Statuses of an app's requests, each of which is metered and settled."""
    headers = {"authorization": f"Bearer {running.month.app_key}", "x-breakeven-tags": SIMULATE_TAG}
    body = {"model": "auto", "max_tokens": 4, "messages": [{"role": "user", "content": "The capital of France?"}]}
    with httpx.Client(base_url=running.gateway, headers=headers, timeout=120, trust_env=False) as client:
        return [client.post("/v1/chat/completions", json=body).status_code for _ in range(REQUESTS)]


def ask(url: str) -> None:
    """Keep asking until the UI answers or dies."""
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(f"{url}/ui/sign-in", timeout=300, trust_env=False)
