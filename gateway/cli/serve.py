"""`breakeven serve`: sets up what is missing, then runs the engine, the gateway and the web UI until told to stop."""

import asyncio
import socket
import time
from contextlib import AbstractContextManager

import typer
from rich.console import Console

from gateway.api.assemble import build_app
from gateway.cli.address import remember_address, running_url
from gateway.cli.first_curve import first_curve
from gateway.cli.known_keys import remember_key_names
from gateway.cli.serve_children import Addresses, fetch_weights, has_engine_package, plan_children
from gateway.cli.serve_fleet import serve_fleet
from gateway.cli.serve_text import STOPPING, STOPPING_ALREADY, show_addresses, show_ready, without_engine
from gateway.composition.deployment import load_deployment, load_environment_settings, require_redis
from gateway.composition.engine_monitor import measure_curve
from gateway.composition.first_keys import FirstKeys, create_first_keys
from gateway.composition.running import Gateway
from gateway.composition.web_ui import allow_company_sign_in, is_web_ui_installed
from gateway.composition.wiring import open_gateway
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home, find_home
from gateway.config.settings import LOCAL_BACKEND
from gateway.process.log_lines import set_up_log
from gateway.process.open_files import allow_open_files, require_open_files
from gateway.process.server import bind, loop_factory, reserve, serve_until_stopped
from gateway.process.service_manager import keep_watchdog, tell
from gateway.process.sole_use import sole_use
from gateway.process.unawaited_output import unawaited_output
from gateway.storage.pepper import require_same_pepper
from native import cycles, huge_pages

DRAIN_SECONDS = 30
POLL_SECONDS = 0.25


def command(
    port: int = typer.Option(8080, min=0, max=65535, help="Where the gateway listens; 0 picks a free port."),
    host: str = typer.Option("", help="Interface to listen on; the configuration's when left out."),
    with_ui: bool = typer.Option(True, "--ui/--no-ui", help="Start the web UI."),
    workers: int = typer.Option(0, min=0, max=256, help="Worker processes; the configuration's when left out."),
) -> None:
    """Start everything. Safe to run again: what is there already is kept."""
    with unawaited_output():
        set_up_log()
        _start(host, port, workers, with_ui=with_ui)


def _start(host: str, port: int, workers: int, *, with_ui: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    require_open_files(allow_open_files())
    home = find_home()
    create_home(home)
    has_engine = has_engine_package()
    written = write_first_files(home, has_engine=has_engine)
    for path in written:
        console.print(f"Wrote {path}")
    if home.config_file in written and not has_engine:
        console.print(without_engine(home.config_file), markup=False)
    settings = load_environment_settings(home)
    workers = workers or settings.server.workers
    require_redis(settings, workers, home)
    take_port = bind if workers == 1 else reserve
    with _alone(home), take_port(host or settings.server.host, port) as listener:
        remember_address(home, *listener.getsockname()[:2])
        if settings.engine.is_enabled:
            fetch_weights(home, settings)
        remember_key_names(home, settings)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            if workers == 1:
                runner.run(_serve(home, listener, console, with_ui=with_ui))
            else:
                runner.run(serve_fleet(home, listener, console, workers=workers, with_ui=with_ui))
    console.print("Stopped.")


def _alone(home: Home) -> AbstractContextManager[None]:
    """Two would count budgets and rates each for itself, and take turns at one web UI and one address.

    Asked before the port is: whoever starts it a second time hears where it runs, not of a port to take instead.
    """
    where = f"open {running_url(home)}, where it was last started, or " if home.address_file.exists() else ""
    advice = f"{where}stop that one, or give this one a BREAKEVEN_HOME of its own"
    return sole_use(home.lock_file, of=str(home.root), advice=advice)


async def _serve(home: Home, listener: socket.socket, console: Console, *, with_ui: bool) -> None:
    """Everything but the engine and the web UI in this process."""
    host, port = listener.getsockname()[:2]
    settings = load_environment_settings(home)
    children = plan_children(home, settings, host=host, port=port, with_ui=with_ui)
    addresses = children.addresses
    gateway = await open_gateway(load_deployment(home, engine_url=addresses.engine))
    keys = await create_first_keys(gateway.stores.keys)
    await require_same_pepper(gateway.database, home)
    await allow_company_sign_in(children.ui, settings.sign_in.oidc, home, gateway.stores.keys)
    await gateway.start()
    tasks = [asyncio.create_task(child.run(), name=child.name) for child in children.supervisors]
    tasks.append(asyncio.create_task(_announce(gateway, addresses, keys, console), name="announce"))
    try:
        app = build_app(gateway, ui_url=addresses.ui)
        cycles.search_seldom()
        huge_pages.gather()
        tasks.append(asyncio.create_task(keep_watchdog(), name="watchdog"))
        tell("READY=1")  # the port listens: who comes now is answered
        await serve_until_stopped(
            app,
            listener,
            drain_seconds=DRAIN_SECONDS,
            slow_client_seconds=settings.server.slow_client_seconds,
            told_again=lambda: console.print(STOPPING_ALREADY),
        )
    finally:
        tell("STOPPING=1")
        console.print(STOPPING)
        try:
            await gateway.stop()  # before the engine: a sampled request may still be waiting for it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    gateway.journal.require_synced()  # so that a service manager that restarts what fails starts this again


async def _announce(gateway: Gateway, addresses: Addresses, keys: FirstKeys | None, console: Console) -> None:
    """Say how to use it; wait for the engine; measure it once."""
    show_addresses(addresses, keys, console, is_ui_installed=is_web_ui_installed())
    if addresses.engine is not None:
        await _engine_ready(gateway, addresses.engine, console)
    show_ready(gateway.deployment, addresses, keys, console)


async def _engine_ready(gateway: Gateway, url: str, console: Console) -> None:
    began, home = time.monotonic(), gateway.deployment.home
    console.print(f"Engine    loading {gateway.deployment.settings.engine.model} (log: {home.engine_log})")
    # The gateway's own view, not the engine's: what it has not yet seen healthy it would still refuse to route to.
    while True:
        seen = gateway.pipeline.upstreams.health.get(LOCAL_BACKEND)
        if seen is not None and seen.is_healthy:
            break
        await asyncio.sleep(POLL_SECONDS)
    console.print(f"Engine    ready after {time.monotonic() - began:.1f} s")
    name = gateway.deployment.settings.engine.name
    if curve := await first_curve(home.curve_file, lambda: measure_curve(url, name), console):
        gateway.use_curve(curve)
