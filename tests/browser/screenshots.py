"""`make screenshots`: every page over a demonstration month and over an empty ledger; the best go into docs/images."""

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli.demo.month import write_demo_month
from gateway.composition.first_keys import create_first_keys
from gateway.config.home import Home
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql.keys import SqlKeyStore
from tests.browser.conftest import ROOT, child, ui_command
from tests.browser.pictures import LAPTOP, open_browser, picture, sign_in, take_all
from tests.homes import new_home
from tests.ports import free_port

REQUESTS = 20_000
IN_DOCS = (
    "ui-overview-light",
    "ui-overview-dark",
    "ui-overview-light-phone",
    "ui-explorer-dark",
    "ui-break-even-light",
    "ui-utilisation-light",
    "ui-budgets-light",
    "ui-request-light",
    "ui-rules-light",
    "ui-rules-form-light",
    "ui-keys-dark",
)


@contextlib.contextmanager
def running(home: Home, logs: Path) -> Generator[str]:
    """Run a gateway and a web UI over this home; the address of the UI."""
    gateway, ui = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{(ui_port := free_port())}"
    serve = [sys.executable, "-m", "tests.browser.gateway_process", str(home.root), str(port)]
    pages = ui_command(gateway, ui_port)
    with (
        child(serve, f"{gateway}/healthz", logs / "gateway.log", {}),
        child(pages, f"{ui}/ui/healthz", logs / "ui.log", {}),
    ):
        yield ui


async def make_empty(home: Home) -> str:
    """A deployment without requests; its owner's key."""
    new_home(home.root)
    database = open_database(home.database_url)
    try:
        await migrate_engine(database)
        keys = await create_first_keys(SqlKeyStore(database, home.pepper()))
    finally:
        await database.dispose()
    assert keys is not None
    return keys.owner


def take(home: Home, key: str, into: Path, *, is_empty: bool) -> list[Path]:
    with tempfile.TemporaryDirectory() as profile, running(home, home.root) as url:
        browser = open_browser(profile=profile)
        try:
            if is_empty:
                sign_in(browser, url, key)
                return take_all(browser, url, into, themes=("light",), name="ui-empty")
            browser.get(f"{url}/ui/sign-in")
            picture(browser, LAPTOP, into / "ui-sign-in.png")
            sign_in(browser, url, key)
            return [into / "ui-sign-in.png", *take_all(browser, url, into)]
        finally:
            browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "screenshots")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "images", help="where the best ones go")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        month = asyncio.run(write_demo_month(home, now=datetime.now(UTC), requests=asked.requests))
        assert month is not None
        written = take(month.home, month.owner_key, asked.out, is_empty=False)
        empty = Home(Path(directory) / "empty")
        written += take(empty, asyncio.run(make_empty(empty)), asked.out, is_empty=True)
    for path in written:
        if path.stem in IN_DOCS:
            shutil.copy(path, asked.docs / path.name)
        print(f"{path.stat().st_size / 1000:7.1f} kB  {path}")


if __name__ == "__main__":
    main()
