"""The newest schema as created by the migrations, which run once per process; tests get copies.

This saves half a second of CPU per test on PostgreSQL and a fifth of a second on SQLite, for hundreds of tests.
"""

import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import make_url

from gateway.storage.database import migrate
from gateway.storage.schema import bring_to
from gateway.storage.sqlite import open_blocking_sqlite, writing_here
from tests.postgres_server import dump_postgres, restore_postgres

_dumps: dict[str, str] = {}


async def make_newest(url: str) -> None:
    """Brings an empty database to the same state as `migrate`."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        make_newest_file(Path(str(parsed.database)))
        return
    directory = str(parsed.query["host"])
    if directory in _dumps:
        await restore_postgres(directory, _dumps[directory])
    else:
        await migrate(url)
        _dumps[directory] = dump_postgres(directory)


def make_newest_file(path: Path) -> None:
    """Like `make_newest`, for callers without an event loop."""
    path.write_bytes(_newest_file())


@cache
def _newest_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "newest.db")
        engine = open_blocking_sqlite(f"sqlite:///{path}")
        with writing_here(engine) as connection:
            bring_to(connection, "head")
        engine.dispose()
        return path.read_bytes()
