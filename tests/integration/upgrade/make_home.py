"""Creates an older version's home for test_older_home.py by running that version, so that its records are genuine.

`python -m tests.integration.upgrade.make_home COMMIT` writes COMMIT.tar.xz next to this file: a home with shipped
entries, settled ones not yet shipped, and a request during which the process was killed; and what that version itself
made of it at its next start. Needs git, and packages with which that version still runs.
"""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.waiting import wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PATIENCE_SECONDS = 120
CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends:
  provider: {{base_url: "{provider}", provider: openai}}
"""
MODEL = "{backend: provider, upstream_model: gpt-5.4-mini, priced_as: openai/gpt-5.4-mini, context_window: 200000}"
RULES = f"""\
version: 1
models:
  plain: {MODEL}
  other: {MODEL}
rules:
  - name: blue
    when: {{team: [blue]}}
    choose: {{from: [other]}}
  - name: all
    choose: {{from: [plain], by: order}}
"""
ASKED: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "What is six times seven?"}]}
ENTRIES = """
    SELECT lower(hex(request_id)), status, model, input_tokens, output_tokens,
           input_pico_usd + cached_input_pico_usd + cache_write_pico_usd + output_pico_usd + other_pico_usd
    FROM entries JOIN dimensions ON dimensions.id = dimension_id ORDER BY 1
"""
SUMS = "SELECT sum(requests), sum(input_tokens), sum(output_tokens), sum(input_pico_usd + output_pico_usd) FROM hourly"


class Old:
    """One start of the old version on a home."""

    def __init__(self, tree: Path, home: Path) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.lines: list[str] = []
        command = [sys.executable, "-m", "gateway", "serve", "--port", str(port), "--no-ui"]
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environment |= {"BREAKEVEN_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        threading.Thread(target=self.lines.extend, args=(self.process.stdout,), daemon=True).start()
        wait_until(lambda: "Ready." in self.output, "it is ready")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def key(self, which: str) -> str:
        found = re.search(rf"{which} key.*(bk-\S+)", self.output)
        assert found, self.output
        return found[1]

    def ask(self, key: str, **changes: Any) -> httpx.Response:
        url, headers = f"{self.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        return httpx.post(url, json={**ASKED, **changes}, headers=headers, timeout=PATIENCE_SECONDS)

    def new_key(self, owner: str, **fields: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {owner}"}
        answer = httpx.post(f"{self.url}/admin/v1/keys", json=fields, headers=headers, timeout=PATIENCE_SECONDS)
        return answer.raise_for_status().json()


@contextmanager
def scripted_provider(*options: str) -> Generator[str]:
    command = [sys.executable, "-m", "tests.scripted_provider", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def rows(home: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(home / "breakeven.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def live(old: Old, home: Path) -> dict[str, str]:
    """Runs until everything is recorded, then kills it; returns its keys by role."""
    owner, app = old.key("owner"), old.key("app")
    blue = old.new_key(owner, name="blue", team="blue")["key"]
    for number in range(9):
        old.ask((app, blue)[number % 2], stream=number % 3 == 0)
    wait_until(lambda: rows(home, "SELECT count(*) FROM entries") == [(9,)], "they are shipped")
    busy = sqlite3.connect(home / "breakeven.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")  # from here on nothing is shipped
    for _ in range(3):
        old.ask(app)
    headers, body = {"authorization": f"Bearer {app}"}, {**ASKED, "stream": True, "max_tokens": 4096}
    url = f"{old.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=PATIENCE_SECONDS) as unfinished:
        pieces = unfinished.iter_raw()  # kept, since without it the client would disconnect
        next(pieces)
        old.kill()
    busy.close()
    return {"owner": owner, "app": app, "blue": blue}


def pack(home: Path, expected: dict[str, Any], target: Path) -> None:
    """Packs segments without the zeros after their records; the reader extends them again."""
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for path in sorted(home.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                add(packed, str(path.relative_to(home)), content.rstrip(b"\0") if path.suffix == ".seg" else content)
        add(packed, "expected.json", json.dumps(expected, indent=1).encode())


def add(packed: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    packed.addfile(member, io.BytesIO(content))


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as folder, scripted_provider("--pieces", "40", "--delay", "0.02") as provider:
        tree, home, again = (Path(folder, name) for name in ("tree", "home", "again"))
        tree.mkdir()
        home.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(tree, filter="data")
        (home / "breakeven.yaml").write_text(CONFIGURATION.format(provider=provider), "utf-8")
        (home / "rules.yaml").write_text(RULES, "utf-8")
        old = Old(tree, home)
        try:
            keys = live(old, home)
        finally:
            old.kill()
        subprocess.run(["cp", "-r", home, again], check=True)
        old = Old(tree, again)
        wait_until(lambda: rows(again, "SELECT count(*) FROM entries") == [(13,)], "it has settled what died")
        old.process.send_signal(signal.SIGTERM)
        old.process.wait(PATIENCE_SECONDS)
        [[revision]] = rows(home, "SELECT version_num FROM alembic_version")
        expected = {"revision": revision, "keys": keys, "entries": rows(again, ENTRIES), "sums": rows(again, SUMS)[0]}
        pack(home, expected, HERE / f"{commit}.tar.xz")
        print(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
