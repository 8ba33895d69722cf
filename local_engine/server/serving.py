"""The server process: loads the model, serves on a bound socket, drains on SIGTERM, and ends with its parent."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import uvicorn

from local_engine.assembly import build_engine
from local_engine.async_engine import AsyncEngine
from local_engine.choices import Wishes
from local_engine.config import EngineConfig
from local_engine.encoder import SentenceEncoder
from local_engine.loading.packages import print_progress
from local_engine.server.http_protocol import BoundedProtocol, most_accepted
from local_engine.server.listening import listening_told
from local_engine.server.long_bodies import are_unfinished
from local_engine.server.openai_server import build_app
from native import cycles

PARENT_CHECK_SECONDS = 1.0
BEAT_SECONDS = 1.0
# Time to report errors for answers that the drain limit cuts off.
TELLING_SECONDS = 2.0


class QuietServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise SIGTERM again after stopping, and the exit status would not be 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def serve(
    path: Path,
    config: EngineConfig,
    wishes: Wishes,
    *,
    host: str,
    bound: socket.socket,
    served_name: str | None,
    drain_seconds: float,
    parent: int | None = None,
    beats: int | None = None,
    embedding_folder: Path | None = None,
    embedding_name: str | None = None,
) -> int:
    """Serve on `bound` until told to stop, or until `parent` is no longer our parent; returns the exit status.

    `beats` is a pipe to it, into which we write as long as we live. The status is 1 if the step loop died: whoever
    started the process may start another.
    """
    engine = build_engine(path, config, wishes=wishes, progress=print_progress)
    encoder = SentenceEncoder(embedding_folder, name=embedding_name) if embedding_folder is not None else None
    # Before it says that it serves: who waits for that may connect at once.
    listen(bound)
    template = engine.tokenizer.bound_template()
    name = served_name or engine.model.name
    cycles.search_seldom()

    async def run() -> int:
        running = engine.serve()
        running.start()
        app = build_app(running, engine, model_name=name, encoder=encoder)
        http = uvicorn.Config(
            app,
            http=BoundedProtocol,
            backlog=most_accepted(),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
        )
        server = QuietServer(http)
        beside = [asyncio.create_task(stop_when_told(server, running, drain_seconds, parent))]
        if beats is not None:
            beside.append(asyncio.create_task(beat(beats, running)))
        print_progress(f"Serving {name} on http://{host}:{bound.getsockname()[1]}")
        await server.serve(sockets=[bound])
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await running.stop()
        return 1 if running.has_died else 0

    status = asyncio.run(run())
    template.close()
    if are_unfinished():
        # A thread that returns from a library into a finalised interpreter would crash the process with a signal.
        os._exit(status)
    return status


def listen(bound: socket.socket) -> None:
    """Accepts connections. Raises EngineError if another process listens on the port, which it may have bound too."""
    with listening_told(bound, *bound.getsockname()[:2]):
        bound.listen(most_accepted())


async def beat(descriptor: int, engine: AsyncEngine, *, every_seconds: float = BEAT_SECONDS) -> None:
    """Until cancelled. A process that stands still does not beat, and we do not for a step that hangs: only whoever
    started us can end either."""
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    while True:
        if not engine.has_hung:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(descriptor, b".")
        await asyncio.sleep(every_seconds)


async def stop_when_told(server: uvicorn.Server, engine: AsyncEngine, drain_seconds: float, parent: int | None) -> None:
    """On SIGTERM or SIGINT refuse new requests, finish running ones, then stop. An orphan stops at once.

    An engine whose step loop died stops once its requests have been told.
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    while not told.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), PARENT_CHECK_SECONDS)
        if parent is not None and os.getppid() != parent:
            drain_seconds = 0.0
            told.set()
        if engine.has_died:
            print_progress("Stopping: the step loop died, see above")
            told.set()
    if not await engine.drain(drain_seconds):
        print_progress("Stopping with answers unfinished: the drain limit has passed")
        engine.abandon("The engine was stopped before this answer was finished.")
        server.force_exit = not await engine.drain(TELLING_SECONDS)
        if server.force_exit:
            # Since Python 3.12 asyncio's server waits for open connections, and uvicorn waits for asyncio's server.
            server.config.timeout_graceful_shutdown = 0
    server.should_exit = True
