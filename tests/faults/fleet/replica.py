"""A replica as it is deployed: `breakeven serve --workers N` in its own process, with access to all child processes."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

PEPPER = "5a" * 32
CONFIGURATION = """\
server: {{budget_wait_seconds: 90}}  # machines that test are slow, and nobody is to be refused for that
engine: {{is_enabled: false}}
simulated_hosted: never
backends:
  provider:
    base_url: {provider}
    provider: openai
kept_answers: {{response_hours: 1}}
limits: {{teams: {{red: {{requests_per_minute: 30}}}}}}
tiers: {{premium: [premium]}}
shadow_calls: {{share: 1, budget_usd_per_day: "0.01"}}  # under a rule with two models
"""
RULES = """\
version: 1
models:
  plain: {{backend: provider, upstream_model: plain, priced_as: openai/gpt-5.4-mini, context_window: 200000}}
  premium: {{backend: provider, upstream_model: premium, priced_as: openai/gpt-5.4, context_window: 200000}}
rules:
  - name: {rule}
    choose: {{from: {models}, by: order}}
"""


def rules_text(rule: str, models: str = "[plain]") -> str:
    return RULES.format(rule=rule, models=models)


class Replica:
    """A replica that can be started again after `kill`: it keeps its home and its port."""

    def __init__(
        self,
        home: Path,
        *,
        provider: str,
        database: str,
        redis: str,
        workers: int = 2,
        configuration: str = CONFIGURATION,
        rules: str | None = None,
    ) -> None:
        self.home = home
        self.workers = workers
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = home / "output.log"
        home.mkdir(parents=True)
        (home / "breakeven.yaml").write_text(configuration.format(provider=provider), "utf-8")
        (home / "rules.yaml").write_text(rules or rules_text("first"), "utf-8")
        self.environment: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "BREAKEVEN_HOME": str(home),
            "BREAKEVEN_DATABASE_URL": database,
            "BREAKEVEN_REDIS_URL": redis,
            "BREAKEVEN_PEPPER": PEPPER,
            "PYTHONUNBUFFERED": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8")

    def start(self) -> None:
        command = [sys.executable, "-m", "gateway", "serve", "--port", str(self.port), "--no-ui"]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--workers", str(self.workers)], stdout=output, stderr=output, env=dict(self.environment)
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.output
            return "Ready." in self.output

        wait_until(is_ready, f"{self.url} is not ready")

    def owner_key(self) -> str | None:
        """The owner's key, which the first replica on an empty database has."""
        assert self._process is not None
        assert self._process.poll() is None, self.output
        found = re.search(r"owner key.*(bk-\S+)", self.output)
        return found[1] if found else None

    def worker_processes(self) -> list[psutil.Process]:
        assert self._process is not None
        found: list[psutil.Process] = []
        for child in psutil.Process(self._process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # a process that has just died has no command line
                found += [child] if "gateway.worker" in child.cmdline() else []
        return found

    @property
    def process(self) -> psutil.Process:
        """The process that was started; with more than one worker, their parent."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def kill(self, *, with_children: bool = True) -> None:
        """Kills all its processes with -9, as if its machine had lost power but kept its disk; or only the first
        process."""
        assert self._process is not None
        root = self.process
        for process in [root, *(root.children(recursive=True) if with_children else ())]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def terminate(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Waits for the exit status; 0 also if it was never started."""
        return self._process.wait(PATIENCE_SECONDS) if self._process is not None else 0
