"""What a worker process serves, from its options until it is told to stop."""

import argparse
import asyncio
import os
import signal

from gateway.api.assemble import build_app, sockets_of
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.home import find_home
from gateway.process.heartbeat import beat
from gateway.process.server import bind, serve_until_stopped
from gateway.process.tasks import end_tasks
from native import cycles, huge_pages

PARENT_SECONDS = 0.5


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM, or until the parent process is gone."""
    gateway = await open_gateway(load_deployment(find_home(), engine_url=options.engine_url), workers=options.workers)
    await gateway.start()
    watching = asyncio.create_task(_end_with_parent(options.parent))
    beside: list[asyncio.Task[None]] = []
    try:
        app = build_app(gateway, ui_url=options.ui_url)
        cycles.search_seldom()
        huge_pages.gather()
        with bind(options.host, options.port, is_shared=True) as listener:  # not before requests can be answered
            options.ready.touch()
            if options.beats is not None:
                beside.append(asyncio.create_task(beat(options.beats)))
            settings = gateway.deployment.settings.server
            await serve_until_stopped(
                app,
                listener,
                slow_client_seconds=settings.slow_client_seconds,
                sockets=sockets_of(settings),
                may_hurry=False,  # SIGTERM may come twice: from a service manager that signals all, and from the parent
            )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await gateway.stop()
        await end_tasks(beside)
    gateway.journal.require_synced()


async def _end_with_parent(parent: int) -> None:
    """Without its parent this worker would be unsupervised and would keep the port taken."""
    while True:
        await asyncio.sleep(PARENT_SECONDS)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
            return
