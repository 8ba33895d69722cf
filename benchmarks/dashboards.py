"""How quick the web UI is over a big ledger (`--rows 10000000`).

A month of rows in SQLite, the gateway and the UI as two processes, and a real Chromium that loads every page. It
measures first paint, first figures, charts drawn, kilobytes received, and the memory of both processes afterwards.
`--home` keeps the month for the next run. The period of every page is the whole month.
"""

import asyncio
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from benchmarks.ledger.month import DAYS, HOURS, lay_down
from benchmarks.ledger.traffic import START_US
from benchmarks.page_loads import measure
from benchmarks.report import Bar, build_report, options, publish
from gateway.composition.first_keys import create_first_keys
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql.keys import SqlKeyStore
from tests.browser.conftest import child
from tests.ports import free_port

KEY_FILE = "benchmark-owner.key"
FIGURES_SECONDS = 2.0
CHARTS_SECONDS = 3.0
COLD_KILOBYTES = 2500
UI_MEGABYTES = 300


async def build(home: Home, rows: int) -> float:
    """Write the month's rows; the seconds that took, 0 if they are there already."""
    if (home.root / KEY_FILE).exists():
        return 0.0
    create_home(home)
    write_first_files(home)
    database = open_database(home.database_url)
    try:
        await migrate_engine(database)
        keys = await create_first_keys(SqlKeyStore(database, home.pepper()))
        seconds = await lay_down(database, rows)
    finally:
        await database.dispose()
    assert keys is not None, f"{home.root} holds another deployment; choose an empty directory"
    (home.root / KEY_FILE).write_text(keys.owner, encoding="ascii")
    return seconds


def run(home: Home) -> dict[str, Any]:
    """Starts both processes and measures every page."""
    start = datetime.fromtimestamp(START_US / 1e6, UTC)
    period = {"since": start.isoformat(), "until": (start + timedelta(days=DAYS)).isoformat()}
    gateway, ui = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{(ui_port := free_port())}"
    serve = [sys.executable, "-m", "tests.browser.gateway_process", str(home.root), str(port)]
    pages = [sys.executable, "-m", "dashboards", "--gateway", gateway, "--port", str(ui_port)]
    key = (home.root / KEY_FILE).read_text(encoding="ascii")
    with (
        child(serve, f"{gateway}/healthz", home.root / "gateway.log", {}) as server,
        child(pages, f"{ui}/ui/healthz", home.root / "ui.log", {}) as shown,
    ):
        before = megabytes(shown.pid)
        results = measure(ui, key, period)
        memory = {"ui_before": before, "ui_after": megabytes(shown.pid), "gateway_after": megabytes(server.pid)}
    return {"pages": results, "memory_megabytes": memory}


def megabytes(pid: int) -> float:
    return round(psutil.Process(pid).memory_info().rss / 1e6, 1)


def judge(results: dict[str, Any]) -> list[Bar]:
    pages = results["pages"].values()
    return [
        Bar(
            "slowest page until its figures, warm, s",
            max(p["warm"]["figures_seconds"] for p in pages),
            FIGURES_SECONDS,
            "most",
        ),
        Bar(
            "slowest page until its charts, warm, s",
            max(p["warm"]["charts_seconds"] for p in pages),
            CHARTS_SECONDS,
            "most",
        ),
        Bar("heaviest page, cold, kB", max(p["cold"]["received_kilobytes"] for p in pages), COLD_KILOBYTES, "most"),
        Bar("memory of the UI's process, MB", results["memory_megabytes"]["ui_after"], UI_MEGABYTES, "most"),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help=f"requests of the month, at least {HOURS}")
    parser.add_argument("--home", type=Path, default=None, help="where the month is kept; a directory of its own")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Home(asked.home or Path(name))
        home.root.mkdir(parents=True, exist_ok=True)
        seconds = asyncio.run(build(home, asked.rows))
        results = {"rows": asked.rows, "build_seconds": round(seconds, 1), **run(home)}
    publish(build_report("dashboards", results, judge(results)), asked)


if __name__ == "__main__":
    main()
