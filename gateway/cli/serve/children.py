"""The children of `breakeven serve` besides its workers: the engine and the web UI, and where each listens."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.address import local_url
from gateway.composition.child_secrets import secrets_in
from gateway.composition.web_ui import WebUi, ui_supervisor
from gateway.config.home import Home
from gateway.config.settings import Settings
from gateway.errors import StateError
from gateway.extras import install_command, is_installed
from gateway.process.heartbeat import Patience
from gateway.process.server import free_port
from gateway.process.supervisor import Supervisor

ENGINE_PACKAGE = "torch"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Base URLs; the engine's ends in /v1."""

    gateway: str
    engine: str | None
    ui: str | None


@dataclass(frozen=True, slots=True)
class Children:
    """Exactly one engine and one web UI, however many workers there are."""

    addresses: Addresses
    supervisors: list[Supervisor]
    ui: WebUi | None


def plan_children(home: Home, settings: Settings, *, host: str, port: int, with_ui: bool) -> Children:
    """Where everything will listen; nothing is started yet."""
    url, ui_port = local_url(host, port), free_port(prefer=port + 1)
    engine_url = f"http://127.0.0.1:{free_port()}/v1" if settings.engine.is_enabled else None
    prefix, withheld = settings.ui_path_prefix, secrets_in(settings)
    ui = ui_supervisor(home, gateway_url=url, port=ui_port, path_prefix=prefix, withheld=withheld) if with_ui else None
    supervisors = [ui.supervisor] if ui else []
    if engine_url is not None:
        supervisors.append(engine_supervisor(home, settings, engine_url))
    return Children(Addresses(url, engine_url, ui.url if ui else None), supervisors, ui)


def engine_supervisor(home: Home, settings: Settings, url: str) -> Supervisor:
    """The engine as a child of this process, at the port of `url`."""
    engine = settings.engine
    arguments = ["--model", engine.model, "--models-dir", str(home.models_directory), "--served-name", engine.name]
    if engine.embedding_model is not None:
        arguments += ["--embedding-model", engine.embedding_model, "--embedding-name", engine.embedding_name]
    arguments += ["--port", url.removesuffix("/v1").rpartition(":")[2], "--exit-with-parent", str(os.getpid())]
    return Supervisor(
        name="engine",
        command=[sys.executable, "-m", "local_engine", "serve", *arguments],
        log_file=home.engine_log,
        environment={"PYTHONUNBUFFERED": "1"},
        withheld=secrets_in(settings),
        patience=Patience(looks=60),  # a start takes minutes on a GPU: longer than for a worker
    )


def require_engine_package(config_file: Path, package: str = ENGINE_PACKAGE) -> None:
    """Checked before weights are fetched for an engine that could not start. Raises StateError."""
    if not is_installed(package):
        raise StateError(
            f"the bundled engine needs {package}, which is not installed here: {install_command('engine')} "
            f"brings it; or set engine.is_enabled to false in {config_file} to run without it"
        )


def fetch_weights(home: Home, settings: Settings) -> None:
    """Download the engine's weights unless they are there; the child prints progress. Raises StateError."""
    engine, secrets = settings.engine, secrets_in(settings)
    environment = {name: value for name, value in os.environ.items() if name not in secrets}
    require_engine_package(home.config_file)
    wanted = [engine.model] if engine.embedding_model is None else [engine.model, engine.embedding_model]
    for model in wanted:
        command = [sys.executable, "-m", "local_engine", "fetch", "--model", model]
        command += ["--into", str(home.models_directory)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment)
        if done.returncode != 0:
            raise StateError(
                f"the engine's weights ({model}) could be neither found nor downloaded, see above; "
                f"set engine.is_enabled to false in {home.config_file} to run without the bundled engine"
            )
