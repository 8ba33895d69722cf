"""`python -m dashboards --gateway http://127.0.0.1:8080 --port 8081`: serves the web UI under /ui."""

import argparse
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from dashboards.app import UiSettings, build_app
from dashboards.gateway_client import ANSWER_SECONDS
from dashboards.http_protocol import bounded, most_connections
from dashboards.path_prefix import parse_prefix
from dashboards.sign_in.company import CONFIGURATION, read_oidc
from dashboards.sign_in.oidc import OidcSettings

PARENT_SECONDS = 1.0
LAST_PORT = 65_535


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description="Breakeven's web UI.")
    parser.add_argument(
        "--gateway", type=address, default="http://127.0.0.1:8080", help="the gateway's address, as seen from here"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port, default=8081)
    parser.add_argument("--behind-tls", action="store_true", help="a proxy in front speaks HTTPS: secure cookies only")
    parser.add_argument(
        "--path-prefix",
        metavar="/PATH",
        help="the path of a shared host that a proxy has put before /ui; else that of the sign-in's public_url",
    )
    parser.add_argument("--state", type=Path, help="a directory: sessions outlive a restart in it")
    parser.add_argument(
        "--answer-seconds",
        type=seconds,
        default=ANSWER_SECONDS,
        help="how long the gateway may take for a report before a page says that it does not answer (%(default)s)",
    )
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="stop when this parent has died")
    asked = parser.parse_args()
    if asked.exit_with_parent is not None:
        threading.Thread(target=_end_with_parent, args=(asked.exit_with_parent,), daemon=True).start()
    if (why := why_no_semaphore()) is not None:
        parser.exit(1, f"The web UI cannot start: {why}\n")
    try:
        oidc = read_oidc()
    except (ValueError, KeyError, TypeError) as error:
        parser.error(f"{CONFIGURATION} cannot be used: {error}")
    try:
        path_prefix = prefix_among(asked.path_prefix, oidc[0] if oidc else None)
    except ValueError as error:
        parser.error(f"--path-prefix: {error}")
    app = build_app(
        UiSettings(
            asked.gateway,
            is_secure=asked.behind_tls,
            state=asked.state,
            oidc=oidc,
            answer_seconds=asked.answer_seconds,
            path_prefix=path_prefix,
        )
    )
    uvicorn.run(
        app,
        host=asked.host,
        port=asked.port,
        http=bounded(most_connections()),
        log_level="error",  # anybody could fill the log with warnings about malformed requests
        server_header=False,
        access_log=False,
    )


def address(text: str) -> str:
    """An argument's type: any other text would start, and say on every page that the gateway does not answer."""
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return text
    except ValueError:  # `http://[`, or a port beyond 65535
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8080")


def port(text: str) -> int:
    """Checked here, because the system takes a larger one by its last 16 bits."""
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to {LAST_PORT}")
    return int(text)


def seconds(text: str) -> float:
    if not 0 < (given := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return given


def why_no_semaphore(make: Callable[[], object] = multiprocessing.Lock) -> str | None:
    """Why no semaphore can be created, or None if one can. The page framework needs one and would crash at startup."""
    try:
        make()
    except (OSError, ImportError) as error:
        return (
            f"the system gives it no semaphore ({error}). Mount a tmpfs at /dev/shm that this user may write to and "
            "that has room (a container's --shm-size, or an emptyDir with `medium: Memory`)"
        )
    return None


def prefix_among(asked: str | None, oidc: OidcSettings | None) -> str:
    """The prefix to serve under. Raises ValueError if the sign-in's public_url would lead to a path without pages."""
    known = None if oidc is None else parse_prefix(urlsplit(oidc.public_url).path)
    if asked is None:
        return known or ""
    prefix = parse_prefix(asked)
    if known is not None and prefix != known:
        raise ValueError(f"{asked!r} is not the path of the sign-in's public_url, {known or '/'!r}")
    return prefix


def _end_with_parent(parent: int) -> None:
    """Stop once the parent has died: nobody would supervise this process any more, and its port would stay taken."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
