"""Starts each gateway as its users do, in front of the mock: ours from this checkout, others from their own venvs."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from gateway.process.server import free_port
from tests.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: Mapping[str, Sequence[str]] = {
    "litellm": ("litellm[proxy]==1.106.2",),
    "tensorzero": ("tensorzero==2026.6.0",),
}
START_SECONDS = 180.0

OUR_CONFIGURATION = """\
engine: {{is_enabled: false}}
server: {{max_requests_in_flight: 20000}}
backends:
  mock: {{base_url: {url}}}
price_overrides: [prices.yaml]
"""
OUR_PRICES = """\
overrides:
- {{provider: mock, model: {model}, prices: [{{from: 2026-01-01, source: made up, input: 0.2, output: 0.6}}]}}
"""
OUR_RULES = """\
version: 1
models:
  small: {{backend: mock, upstream_model: {model}, context_window: 100000, supports: [streaming]}}
  large: {{backend: mock, upstream_model: {model}, context_window: 100000, supports: [streaming, tools]}}
rules:
- {{name: easy, when: {{difficulty: {{at_most: 0.4}}}}, choose: {{from: [small], by: expected_cost}}}}
- {{name: default, choose: {{from: [small, large], by: expected_cost}}}}
"""
THEIR_LITELLM = """\
model_list:
- model_name: {model}
  litellm_params: {{model: openai/{model}, api_base: {url}, api_key: none}}
"""
THEIR_TENSORZERO = """\
[gateway]
observability.enabled = false
[models.mock]
routing = ["mock"]
[models.mock.providers.mock]
type = "openai"
model_name = "{model}"
api_base = "{url}/"
api_key_location = "none"
"""
RUN_TENSORZERO = """\
import signal, sys, tensorzero
stores = {"clickhouse_url": None, "postgres_url": None, "valkey_url": None}
gateway = tensorzero._start_http_gateway(config_file=sys.argv[1], async_setup=False, **stores)
print("listening at", gateway.base_url, flush=True)
signal.pause()
"""


class NotStarted(RuntimeError):
    """A gateway did not start."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A running gateway. `url` ends in /v1."""

    name: str
    url: str
    key: str
    model: str
    process: psutil.Process
    beside: tuple[psutil.Process, ...] = ()
    """Further processes that it cannot run without."""

    def processes(self) -> list[psutil.Process]:
        """Its process with all children, and those beside it."""
        return [self.process, *self.process.children(recursive=True), *self.beside]

    def cpu_seconds(self) -> float:
        total = 0.0
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
        return total

    def memory_megabytes(self) -> float:
        """Proportional set size: pages shared between workers count once."""
        total = 0
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += one.memory_full_info().pss
        return round(total / 1e6, 1)


def ensure_environments() -> None:
    """Create .venv-litellm and .venv-tensorzero in the checkout, once."""
    for name, packages in PACKAGES.items():
        home = environment_of(name)
        if (home / ".complete").exists():
            continue
        print(f"Installing {', '.join(packages)} into {home.name} (once)", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", *packages], check=True)
        (home / ".complete").touch()


def environment_of(name: str) -> Path:
    return ROOT / f".venv-{name}"


@contextlib.contextmanager
def mock() -> Generator[str]:
    """The mock's base URL."""
    with _started([sys.executable, "-m", "benchmarks.gateway.mock"], {}) as child:
        assert child.stdout
        yield json.loads(child.stdout.readline())["url"]


@contextlib.contextmanager
def ours(url: str, model: str, workers: int = 1) -> Generator[Rival]:
    """As `serve` starts it: with authentication, classifier, decision and strict journal. Several workers need Redis,
    whose CPU and memory count as ours."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="breakeven-bench-")))
        for name, text in (
            ("breakeven.yaml", OUR_CONFIGURATION),
            ("rules.yaml", OUR_RULES),
            ("prices.yaml", OUR_PRICES),
        ):
            (folder / name).write_text(text.format(url=url, model=model), encoding="utf-8")
        environment = {"BREAKEVEN_HOME": str(folder)}
        beside: tuple[psutil.Process, ...] = ()
        if workers > 1:
            redis = stack.enter_context(RedisServer(folder))
            environment["BREAKEVEN_REDIS_URL"] = redis.url
            beside = (psutil.Process(redis.pid),)
        make = [sys.executable, "-m", "gateway", "keys", "create", "--name", "bench", "--json"]
        made = subprocess.run(make, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        port = free_port()
        command = [sys.executable, "-m", "gateway", "serve", "--no-ui", "--port", str(port)]
        child = stack.enter_context(_started([*command, "--workers", str(workers)], environment))
        base = f"http://127.0.0.1:{port}"
        _wait_for(f"{base}/readyz", child)
        key = json.loads(made.stdout)["key"]
        name = "breakeven" if workers == 1 else f"breakeven, {workers} workers"
        yield Rival(name, f"{base}/v1", key, "auto", psutil.Process(child.pid), beside)


@contextlib.contextmanager
def litellm(url: str, model: str) -> Generator[Rival]:
    """With the master key that it requires; without database or callbacks."""
    key = f"sk-{secrets.token_hex(32)}"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(THEIR_LITELLM.format(url=url, model=model), encoding="utf-8")
        port = free_port()
        command = [environment_of("litellm") / "bin/litellm", "--config", config, "--host", "127.0.0.1"]
        environment = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_TELEMETRY": "False",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MASTER_KEY": key,
        }
        with _started([str(part) for part in [*command, "--port", port]], environment) as child:
            base = f"http://127.0.0.1:{port}"
            _wait_for(f"{base}/health/liveliness", child)
            yield Rival("litellm", f"{base}/v1", key, model, psutil.Process(child.pid))


@contextlib.contextmanager
def tensorzero(url: str, model: str) -> Generator[Rival]:
    """Without authentication or observability."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tensorzero.toml"
        config.write_text(THEIR_TENSORZERO.format(url=url, model=model), encoding="utf-8")
        command = [str(environment_of("tensorzero") / "bin/python"), "-c", RUN_TENSORZERO, str(config)]
        with _started(command, {}) as child:
            assert child.stdout
            announced = next((line for line in child.stdout if line.startswith("listening at ")), None)
            if announced is None:
                raise NotStarted("tensorzero ended before it announced its address")
            base = announced.split()[-1].rstrip("/").removesuffix("/openai/v1")
            yield Rival(
                "tensorzero",
                f"{base}/openai/v1",
                "none",
                "tensorzero::model_name::mock",
                psutil.Process(child.pid),
            )


@contextlib.contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    with tempfile.NamedTemporaryFile(suffix=".log") as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env={**os.environ, **environment}
        )
        try:
            yield child
        except NotStarted as error:
            raise RuntimeError(f"{error}\n{Path(errors.name).read_text('utf-8', 'replace')[-2000:]}") from error
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            assert child.stdout
            child.stdout.close()


def _wait_for(url: str, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise NotStarted(f"{child.args} ended with {child.returncode} before it answered")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise NotStarted(f"{url} did not answer in {START_SECONDS:.0f} s")
