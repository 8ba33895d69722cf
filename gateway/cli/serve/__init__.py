"""`breakeven serve`: sets up what is missing, then runs the engine, the gateway and the web UI until told to stop."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import typer
from rich.console import Console

from gateway.cli.address import remember_address, running_url
from gateway.cli.known_keys import remember_key_names
from gateway.cli.serve.children import ENGINE_PACKAGE, fetch_weights
from gateway.cli.serve.fleet import serve_fleet
from gateway.cli.serve.text import without_engine
from gateway.composition.deployment import load_environment_settings, require_clients, require_redis
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home, find_home
from gateway.extras import is_installed
from gateway.process.log_lines import set_up_log
from gateway.process.open_files import allow_open_files, require_open_files
from gateway.process.server import bind, loop_factory, reserve
from gateway.process.sole_use import sole_use
from gateway.process.unawaited_output import unawaited_output
from native import cycles


def command(
    port: int | None = typer.Option(
        None, min=0, max=65535, help="Port to listen on; the configuration's when left out. 0 picks a free one."
    ),
    host: str = typer.Option("", help="Interface to listen on; the configuration's when left out."),
    with_ui: bool = typer.Option(True, "--ui/--no-ui", help="Start the web UI."),
    workers: int = typer.Option(0, min=0, max=256, help="Worker processes; the configuration's when left out."),
) -> None:
    """Start the engine, the gateway and the web UI. Safe to run again: what is there already is kept."""
    with unawaited_output():
        set_up_log()
        _start(host, port, workers, with_ui=with_ui)


def _start(host: str, port: int | None, workers: int, *, with_ui: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    require_open_files(allow_open_files())
    home = find_home()
    create_home(home)
    has_engine = is_installed(ENGINE_PACKAGE)
    written = write_first_files(home, has_engine=has_engine)
    for path in written:
        console.print(f"Wrote {path}")
    if home.config_file in written and not has_engine:
        console.print(without_engine(home.config_file), markup=False)
    settings = load_environment_settings(home)
    workers = workers or settings.server.workers
    require_redis(settings, workers, home)
    require_clients(settings)
    serve = _alone_or_fleet(workers)
    take_port = bind if workers == 1 else reserve
    port = settings.server.port if port is None else port
    with _alone(home), take_port(host or settings.server.host, port) as listener:
        remember_address(home, *listener.getsockname()[:2])
        if settings.engine.is_enabled:
            fetch_weights(home, settings)
        remember_key_names(home, settings)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(home, listener, console, with_ui=with_ui))
    console.print("Stopped.")


def _alone_or_fleet(workers: int) -> Callable[..., Coroutine[Any, Any, None]]:
    """A fleet's first process serves nobody: it does not import the server, which takes 0.7 s of CPU."""
    if workers > 1:
        return partial(serve_fleet, workers=workers)
    with cycles.unsearched():
        from gateway.cli.serve.alone import serve_alone

    return serve_alone


def _alone(home: Home) -> AbstractContextManager[None]:
    """Two on one home would each count budgets and rates separately, and share one web UI and one address file.

    Comes before the port, so that a second start says where the first one runs, not that its port is taken.
    """
    where = f"open {running_url(home)}, where it was last started, or " if home.address_file.exists() else ""
    advice = f"{where}stop that one, or give this one a BREAKEVEN_HOME of its own"
    return sole_use(home.lock_file, of=str(home.root), advice=advice)
