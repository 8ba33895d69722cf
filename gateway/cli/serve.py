"""`breakeven serve`: sets up what is missing, then runs the engine, the gateway and the web UI until told to stop."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import typer
from rich.console import Console

from gateway.api.assemble import build_app
from gateway.config.engine_curve import save_engine_curve
from gateway.config.home import Home, create_home, find_home
from gateway.config.settings import LOCAL_BACKEND, EngineSettings, load_settings, write_first_files
from gateway.deployment import load_deployment
from gateway.economics.errors import EconomicsError
from gateway.engine_monitor import measure_curve
from gateway.errors import StateError
from gateway.first_keys import FirstKeys, create_first_keys
from gateway.server import bind, free_port, serve_until_stopped
from gateway.supervisor import Supervisor
from gateway.web_ui import ui_supervisor
from gateway.wiring import Gateway, open_gateway

log = logging.getLogger(__name__)
DRAIN_SECONDS = 30
POLL_SECONDS = 0.25
KEY_PLACEHOLDER = "$BREAKEVEN_API_KEY"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Base URLs; the engine's ends in /v1."""

    gateway: str
    engine: str | None
    ui: str | None


def command(
    port: int = typer.Option(8080, min=0, max=65535, help="Where the gateway listens; 0 picks a free port."),
    host: str = typer.Option("", help="Interface to listen on; the configuration's when left out."),
    with_ui: bool = typer.Option(True, "--ui/--no-ui", help="Start the web UI."),
) -> None:
    """Start everything. Safe to run again: what is there already is kept."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    console = Console(highlight=False, soft_wrap=True)
    home = find_home()
    create_home(home)
    for path in write_first_files(home):
        console.print(f"Wrote {path}")
    settings = load_settings(home)
    with bind(host or settings.server.host, port) as listener:
        if settings.engine.is_enabled:
            fetch_weights(home, settings.engine)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(home, listener, console, with_ui=with_ui))
    console.print("Stopped.")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it exists; it does not on Windows."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def fetch_weights(home: Home, engine: EngineSettings) -> None:
    """Bring the engine's weights here, or find them; the child says what it does. Raises StateError."""
    command = [sys.executable, "-m", "local_engine", "fetch", "--model", engine.model]
    done = subprocess.run([*command, "--into", str(home.models_directory)], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise StateError(
            f"the engine's weights ({engine.model}) could not be made ready, see above; "
            f"set engine.is_enabled to false in {home.config_file} to run without the bundled engine"
        )


async def _serve(home: Home, listener: socket.socket, console: Console, *, with_ui: bool) -> None:
    host, port = listener.getsockname()[:2]
    is_enabled = load_settings(home).engine.is_enabled
    engine_url = f"http://127.0.0.1:{free_port()}/v1" if is_enabled else None
    url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    ui = ui_supervisor(home, gateway_url=url, port=free_port(prefer=port + 1)) if with_ui else None
    gateway = await open_gateway(load_deployment(home, engine_url=engine_url))
    keys = await create_first_keys(gateway.keys)
    await gateway.start()
    addresses = Addresses(url, engine_url, ui.url if ui else None)
    children = [ui.supervisor] if ui else []
    if engine_url is not None:
        children.append(engine_supervisor(home, gateway.deployment.settings.engine, engine_url))
    tasks = [asyncio.create_task(child.run(), name=child.name) for child in children]
    tasks.append(asyncio.create_task(_announce(gateway, addresses, keys, console), name="announce"))
    try:
        app = build_app(gateway, ui_url=addresses.ui)
        await serve_until_stopped(app, listener, drain_seconds=DRAIN_SECONDS)
    finally:
        console.print("Stopping: finishing requests, shipping the ledger")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.stop()


def engine_supervisor(home: Home, engine: EngineSettings, url: str) -> Supervisor:
    """The engine as a child of this process, at the port of `url`."""
    arguments = ["--model", engine.model, "--models-dir", str(home.models_directory), "--served-name", engine.name]
    port = url.removesuffix("/v1").rpartition(":")[2]
    return Supervisor(
        name="engine",
        command=[sys.executable, "-m", "local_engine", "serve", *arguments, "--port", port, "--exit-with-parent"],
        log_file=home.engine_log,
        environment={"PYTHONUNBUFFERED": "1"},
    )


async def _announce(gateway: Gateway, addresses: Addresses, keys: FirstKeys | None, console: Console) -> None:
    """Say how to use it; wait for the engine; measure it once."""
    show_keys(keys, console)
    console.print(f"Gateway   {addresses.gateway}/v1   (API documentation: {addresses.gateway}/docs)")
    if addresses.ui is not None:
        console.print(f"Web UI    {addresses.ui}   (sign in with the owner key)")
    if addresses.engine is not None:
        await _engine_ready(gateway, addresses.engine, console)
    hosted = sorted({one.provider for one in gateway.pipeline.snapshot.candidates.values() if one.prices})
    named = [name for name in hosted if name != "simulated"]
    console.print(f"Hosted    {', '.join(named) if named else 'none: set OPENAI_API_KEY or another key to add models'}")
    show_examples(addresses.gateway, keys.app if keys else None, console)
    console.print("Ready. Ctrl-C stops.")


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
    if home.curve_file.exists():
        return
    console.print("Engine    measuring its throughput once, for routing and break-even (about 15 s)")
    try:
        curve = await measure_curve(url, gateway.deployment.settings.engine.name)
        gateway.use_curve(save_engine_curve(home.curve_file, curve))
    except (httpx.HTTPError, KeyError, TypeError, EconomicsError) as error:
        console.print(
            f"Engine    could not be measured ({error}); assumed figures are used until `breakeven bench engine`"
        )


def show_keys(keys: FirstKeys | None, console: Console) -> None:
    """The secrets, this once."""
    if keys is None:
        return
    console.print("\nTwo API keys were created. They are shown this once; only their hashes are stored:")
    console.print(f"  owner key (web UI, administration)  {keys.owner}")
    console.print(f"  app key   (calls models)            {keys.app}\n")


def show_examples(url: str, app_key: str | None, console: Console) -> None:
    """Two ways to ask, ready to paste."""
    key = app_key or os.environ.get("BREAKEVEN_API_KEY") or KEY_PLACEHOLDER
    console.print(
        f"""
  curl {url}/v1/chat/completions \\
    -H "Authorization: Bearer {key}" -H "Content-Type: application/json" \\
    -d '{{"model": "auto", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'

  # pip install openai
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  answer = client.chat.completions.create(
      model="auto", messages=[{{"role": "user", "content": "What is the capital of France?"}}]
  )
  print(answer.choices[0].message.content)
""",
        markup=False,
    )
