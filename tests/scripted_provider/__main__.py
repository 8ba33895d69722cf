"""Runs the provider alone: `python -m tests.scripted_provider --port 9000 --pieces 16 --delay 0.01`.

After SIGUSR1, which it confirms, it gives `--before-hold` more answers, and holds all others until SIGUSR2.
"""

import argparse
import asyncio
import signal

from aiohttp import web

from backends.scripted import Outcome
from backends.usage import Usage
from tests.scripted_provider.process import HOLDS
from tests.scripted_provider.provider import ScriptedProvider


class Holding(ScriptedProvider):
    """A provider that can be told to make its callers wait."""

    def __init__(self, outcome: Outcome, *, port: int, before_hold: int) -> None:
        super().__init__(outcome, port=port, keeps_requests=False)
        self._before_hold = before_hold
        self._room: asyncio.Semaphore | None = None
        self._goes_on = asyncio.Event()

    def hold(self) -> None:
        self._goes_on.clear()
        self._room = asyncio.Semaphore(self._before_hold)
        print(HOLDS, flush=True)

    def go_on(self) -> None:
        self._room = None
        self._goes_on.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._room is not None:
            if self._room.locked():
                await self._goes_on.wait()
            else:
                await self._room.acquire()
        return await super()._handle(request)


async def serve(port: int, outcome: Outcome, before_hold: int) -> None:
    async with Holding(outcome, port=port, before_hold=before_hold) as provider:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, provider.hold)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, provider.go_on)
        print(provider.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the address is printed")
    parser.add_argument("--pieces", type=int, default=16, help="chunks of text per answer")
    parser.add_argument("--first-delay", type=float, default=0.0, help="seconds before the first chunk")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between chunks")
    parser.add_argument("--before-hold", type=int, default=0, help="answers after SIGUSR1 before it holds")
    arguments = parser.parse_args()
    outcome = Outcome(
        pieces=("word ",) * arguments.pieces,
        usage=Usage(input_tokens=20, output_tokens=arguments.pieces),
        first_piece_delay_seconds=arguments.first_delay,
        piece_delay_seconds=arguments.delay,
    )
    try:
        asyncio.run(serve(arguments.port, outcome, arguments.before_hold))
    except KeyboardInterrupt:
        return


main()
