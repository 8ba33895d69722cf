"""`breakeven serve` with one worker: everything but the engine and the web UI in this process."""

import asyncio
import socket
import time

from rich.console import Console

from gateway.api.assemble import build_app, sockets_of
from gateway.cli.serve.children import Addresses, plan_children
from gateway.cli.serve.first_curve import first_curve
from gateway.cli.serve.text import STOPPING, STOPPING_ALREADY, show_addresses, show_ready
from gateway.composition.deployment import load_deployment, load_environment_settings
from gateway.composition.engine_monitor import measure_curve
from gateway.composition.first_keys import FirstKeys, create_first_keys
from gateway.composition.running import Gateway
from gateway.composition.web_ui import allow_company_sign_in, is_web_ui_installed
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.config.settings import LOCAL_BACKEND
from gateway.process.server import serve_until_stopped
from gateway.process.service_manager import keep_watchdog, tell
from gateway.storage.pepper import require_same_pepper
from native import cycles, huge_pages

POLL_SECONDS = 0.25


async def serve_alone(home: Home, listener: socket.socket, console: Console, *, with_ui: bool) -> None:
    """Until SIGINT or SIGTERM."""
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
        tell("READY=1")  # the port listens already: connections from now on are answered
        await serve_until_stopped(
            app,
            listener,
            slow_client_seconds=settings.server.slow_client_seconds,
            sockets=sockets_of(settings.server),
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
    gateway.journal.require_synced()  # if not, it raises, and a service manager restarts us


async def _announce(gateway: Gateway, addresses: Addresses, keys: FirstKeys | None, console: Console) -> None:
    """Say how to use it; wait for the engine; measure it once."""
    show_addresses(addresses, keys, console, is_ui_installed=is_web_ui_installed())
    if addresses.engine is not None:
        await _engine_ready(gateway, addresses.engine, console)
    show_ready(gateway.deployment, addresses, keys, console)


async def _engine_ready(gateway: Gateway, url: str, console: Console) -> None:
    began, home = time.monotonic(), gateway.deployment.home
    console.print(f"Engine    loading {gateway.deployment.settings.engine.model} (log: {home.engine_log})")
    # The gateway's own view, not the engine's: nothing is routed to it before the gateway has seen it healthy.
    while True:
        seen = gateway.pipeline.upstreams.health.get(LOCAL_BACKEND)
        if seen is not None and seen.is_healthy:
            break
        await asyncio.sleep(POLL_SECONDS)
    console.print(f"Engine    ready after {time.monotonic() - began:.1f} s")
    name = gateway.deployment.settings.engine.name
    if curve := await first_curve(home.curve_file, lambda: measure_curve(url, name), console):
        gateway.use_curve(curve)
