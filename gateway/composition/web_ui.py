"""Starts the web UI: a child process that is told the gateway's address and how people sign in."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.access.keys import hash_key
from gateway.config.home import Home
from gateway.config.sign_in import OidcSignIn
from gateway.extras import is_installed
from gateway.process.supervisor import Supervisor
from gateway.stores import KeyStore, NewKey

UI_KEY = "web UI sign-in"
AUTHOR = "breakeven serve"


@dataclass(frozen=True, slots=True)
class WebUi:
    """The child and where it listens."""

    supervisor: Supervisor
    url: str


def is_web_ui_installed() -> bool:
    return is_installed("nicegui")


def ui_supervisor(
    home: Home, *, gateway_url: str, port: int, path_prefix: str = "", withheld: frozenset[str]
) -> WebUi | None:
    """None if the `ui` extra is not installed."""
    if not is_web_ui_installed():
        return None
    state = str(home.root / "ui-sessions")
    command = [sys.executable, "-m", "dashboards", "--gateway", gateway_url, "--port", str(port)]
    command += ["--state", state, "--exit-with-parent", str(os.getpid())]
    if path_prefix:
        command += ["--path-prefix", path_prefix]
    environment = {"PYTHONUNBUFFERED": "1"}
    child = Supervisor("web UI", command, home.ui_log, environment, withheld=withheld)
    return WebUi(child, f"http://127.0.0.1:{port}{path_prefix}/ui")


async def allow_company_sign_in(ui: WebUi | None, oidc: OidcSignIn | None, home: Home, keys: KeyStore) -> None:
    """Passes the child, before it starts, the identity provider, the client secret, and a key with which it creates a
    key for each person."""
    if ui is None or oidc is None:
        return
    given = {"BREAKEVEN_UI_OIDC": oidc.model_dump_json(), "BREAKEVEN_UI_KEY": await _ui_key(home, keys)}
    if secret := os.environ.get(oidc.client_secret_env):
        given[oidc.client_secret_env] = secret
    ui.supervisor.environment = {**ui.supervisor.environment, **given}
    if oidc.public_url.startswith("https://"):
        ui.supervisor.command = [*ui.supervisor.command, "--behind-tls"]


async def _ui_key(home: Home, keys: KeyStore) -> str:
    """The key of the last start if still valid, stored in a file readable only by its owner."""
    path = home.root / "ui.key"
    if path.exists():
        kept = path.read_text("ascii").strip()
        record = await keys.find_by_hash(hash_key(home.pepper(), kept))
        if record is not None and record.role == "owner" and record.revoked_at_us is None:
            return kept
    _, secret = await keys.create(NewKey(UI_KEY, "owner"), author=AUTHOR)
    _write(path, secret)
    return secret


def _write(path: Path, secret: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(secret)
