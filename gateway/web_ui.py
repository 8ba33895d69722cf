"""How the web UI is started: a child process that knows the gateway's address and nothing else of it."""

import importlib.util
import sys
from dataclasses import dataclass

from gateway.config.home import Home
from gateway.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class WebUi:
    """The child and where it listens."""

    supervisor: Supervisor
    url: str


def ui_supervisor(home: Home, *, gateway_url: str, port: int) -> WebUi | None:
    """None where the `ui` extra is not installed."""
    if importlib.util.find_spec("nicegui") is None:
        return None
    command = [sys.executable, "-m", "dashboards", "--gateway", gateway_url, "--port", str(port)]
    environment = {"PYTHONUNBUFFERED": "1"}
    return WebUi(Supervisor("web UI", command, home.ui_log, environment), f"http://127.0.0.1:{port}/ui")
