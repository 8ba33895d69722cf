"""Remembers which provider keys the gateway was last started with, by the names of their environment variables, so that
commands in another terminal do not need the keys. No key is written. And whether one named the database: a command that
lacks it would make another, with no key of this deployment."""

import logging
import os
from collections.abc import Mapping

from gateway.composition.deployment import with_environment
from gateway.composition.provider_keys import keys_of_provider
from gateway.config.home import Home
from gateway.config.providers import hosted_from_environment
from gateway.config.settings import Settings, load_settings
from gateway.errors import StateError
from gateway.whole_file import write_whole

log = logging.getLogger(__name__)
ELSEWHERE = "set-where-the-gateway-runs"
DATABASE = "BREAKEVEN_DATABASE_URL"


def remember_key_names(home: Home, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """As with its address: a full disk is no reason not to serve."""
    names = {key.env for block in settings.backends.values() for key in block.wanted_keys}
    for provider in hosted_from_environment(environ):
        names |= {key.label for key in keys_of_provider(provider.key_env, environ)}
    in_file = load_settings(home)
    if with_environment(in_file, environ).database != in_file.database:
        names.add(DATABASE)
    held = sorted(name for name in names if environ.get(name, "").strip())
    try:
        write_whole(home.key_names_file, "".join(f"{name}\n" for name in held).encode())
    except OSError as error:
        log.warning(
            "cannot write %s (%s): other commands know a provider only where its key is set",
            home.key_names_file, error.strerror,
        )  # fmt: skip


def with_known_keys(home: Home, environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment plus a placeholder for each key that the gateway has and this process lacks. For commands that
    call no provider."""
    missing = [name for name in _names(home) if name != DATABASE and not environ.get(name, "").strip()]
    return {**environ, **dict.fromkeys(missing, ELSEWHERE)}


def require_its_database(home: Home, environ: Mapping[str, str] = os.environ) -> None:
    """Raises StateError if the gateway's database is named only where it runs: not here, nor in breakeven.yaml."""
    if DATABASE in _names(home) and not environ.get(DATABASE):
        raise StateError(
            f"{DATABASE} is not set here, and was where the gateway of {home.root} was started: this would use another "
            "database. Set it as there (from a file of systemd's: `set -a; . FILE; set +a`). If you gave it up, start "
            "`breakeven serve` without it first"
        )


def _names(home: Home) -> list[str]:
    try:
        return home.key_names_file.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []
