"""Where this deployment's gateway was last started, so that other commands find it without being told."""

import logging

from gateway.config.home import Home
from gateway.whole_file import write_whole

log = logging.getLogger(__name__)
DEFAULT_URL = "http://127.0.0.1:8080"


def remember_address(home: Home, host: str, port: int) -> None:
    """Kept after a stop, so that other commands can say where nothing answers.

    A full disk is no reason not to serve: the journal may still have room.
    """
    try:
        write_whole(home.address_file, f"{local_url(host, port)}\n".encode())
    except OSError as error:
        log.warning(
            "cannot write %s (%s): other commands look for this gateway at %s",
            home.address_file, error.strerror, running_url(home),
        )  # fmt: skip


def running_url(home: Home) -> str:
    """The gateway's base URL where it was last started; the usual one if it never was."""
    try:
        return home.address_file.read_text(encoding="utf-8").strip() or DEFAULT_URL
    except FileNotFoundError:
        return DEFAULT_URL


def local_url(host: str, port: int) -> str:
    """How this machine reaches a gateway that listens on `host`."""
    seen = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{seen}]:{port}" if ":" in seen else f"http://{seen}:{port}"
