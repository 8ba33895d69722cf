"""`breakeven serve` with several workers: this process holds the port, keeps its children running and serves nobody.

One engine and one web UI, however many workers. Each worker listens on the port by itself; the kernel deals out the
connections, and a worker that dies takes only its own with it.
"""

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import httpx
from rich.console import Console

from gateway.cli.serve.children import Addresses, Children, plan_children
from gateway.cli.serve.first_curve import first_curve
from gateway.cli.serve.text import STOPPING, STOPPING_ALREADY, show_addresses, show_ready
from gateway.composition.deployment import Deployment, load_deployment, load_environment_settings
from gateway.composition.engine_monitor import measure_curve
from gateway.composition.first_keys import FirstKeys, create_first_keys
from gateway.composition.web_ui import allow_company_sign_in, is_web_ui_installed
from gateway.config.home import Home
from gateway.process.heartbeat import Patience
from gateway.process.service_manager import keep_watchdog, tell
from gateway.process.stop_signals import TOLD_TO_STOP, stop_at_hangup
from gateway.process.supervisor import Supervisor
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.pepper import require_pepper, require_same_pepper
from gateway.storage.sql.keys import SqlKeyStore

POLL_SECONDS = 0.1
WORKER_STOP_SECONDS = 75.0
"""Draining, shipping, and a little more."""


async def serve_fleet(home: Home, reserved: socket.socket, console: Console, *, workers: int, with_ui: bool) -> None:
    """Until SIGINT or SIGTERM; then the workers finish their requests before the engine ends."""
    host, port = reserved.getsockname()[:2]
    settings = load_environment_settings(home)
    children = plan_children(home, settings, host=host, port=port, with_ui=with_ui)
    deployment = load_deployment(home, engine_url=children.addresses.engine)
    keys = await _prepare(deployment, children)
    fleet = [_worker(home, children.addresses, host, port, number, workers) for number in range(workers)]
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in TOLD_TO_STOP:
        loop.add_signal_handler(number, stopped.set)
    stop_at_hangup(loop, stopped.set)
    others = [asyncio.create_task(child.run(), name=child.name) for child in children.supervisors]
    serving = [asyncio.create_task(worker.run(), name=worker.name) for worker in fleet]
    others.append(asyncio.create_task(_announce(deployment, children.addresses, keys, workers, console)))
    others.append(asyncio.create_task(keep_watchdog(), name="watchdog"))
    try:
        await stopped.wait()
    finally:
        tell("STOPPING=1")
        for number in TOLD_TO_STOP:
            loop.add_signal_handler(number, lambda: console.print(STOPPING_ALREADY))
        console.print(STOPPING)
        await _end(serving)
        await _end(others)


async def _prepare(deployment: Deployment, children: Children) -> FirstKeys | None:
    """What must be done once and not by every worker: the schema and the first keys."""
    database = open_database(deployment.database_url)
    try:
        await migrate_engine(database)
        await require_pepper(database, deployment.home)
        keys = SqlKeyStore(database, deployment.home.pepper())
        first = await create_first_keys(keys)
        await require_same_pepper(database, deployment.home)
        await allow_company_sign_in(children.ui, deployment.settings.sign_in.oidc, deployment.home, keys)
        return first
    finally:
        await database.dispose()


def _worker(home: Home, addresses: Addresses, host: str, port: int, number: int, workers: int) -> Supervisor:
    ready = _ready_file(home, number)
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "gateway.worker", "--host", host, "--port", str(port), "--workers", str(workers)]
    command += ["--parent", str(os.getpid())]
    command += ["--ready", str(ready)]
    for name, url in (("--engine-url", addresses.engine), ("--ui-url", addresses.ui)):
        command += [name, url] if url is not None else []
    return Supervisor(f"worker {number}", command, None, patience=Patience(), stop_seconds=WORKER_STOP_SECONDS)


def _ready_file(home: Home, number: int) -> Path:
    return home.metrics_directory / f"worker-{number}.ready"


async def _announce(
    deployment: Deployment, addresses: Addresses, keys: FirstKeys | None, workers: int, console: Console
) -> None:
    """Say how to use it once every worker serves; wait for the engine; measure it once, for all of them."""
    show_addresses(addresses, keys, console, is_ui_installed=is_web_ui_installed())
    for number in range(workers):
        await _appears(_ready_file(deployment.home, number))
    tell("READY=1")
    console.print(f"Workers   {workers} on port {addresses.gateway.rpartition(':')[2]}")
    if addresses.engine is not None:
        await _engine_ready(deployment, addresses.engine, console)
    show_ready(deployment, addresses, keys, console)


async def _appears(file: Path) -> None:
    """Polls for a worker's ready file: a file works however often its process was restarted."""
    while True:
        if await asyncio.to_thread(file.exists):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _engine_ready(deployment: Deployment, url: str, console: Console) -> None:
    home, settings = deployment.home, deployment.settings.engine
    console.print(f"Engine    loading {settings.model} (log: {home.engine_log})")
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"{url.removesuffix('/v1')}/health")).status_code == 200:
                    break
            await asyncio.sleep(POLL_SECONDS)
    console.print("Engine    ready")
    await first_curve(home.curve_file, lambda: measure_curve(url, settings.name), console)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
