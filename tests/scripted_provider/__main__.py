"""Runs the provider alone: `python -m tests.scripted_provider --port 9000 --pieces 16 --delay 0.01`."""

import argparse
import asyncio

from backends.scripted import Outcome
from backends.usage import Usage
from tests.scripted_provider.provider import ScriptedProvider


async def serve(port: int, outcome: Outcome) -> None:
    async with ScriptedProvider(outcome, port=port, keeps_requests=False) as provider:
        print(provider.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the address is printed")
    parser.add_argument("--pieces", type=int, default=16, help="chunks of text per answer")
    parser.add_argument("--first-delay", type=float, default=0.0, help="seconds before the first chunk")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between chunks")
    arguments = parser.parse_args()
    outcome = Outcome(
        pieces=("word ",) * arguments.pieces,
        usage=Usage(input_tokens=20, output_tokens=arguments.pieces),
        first_piece_delay_seconds=arguments.first_delay,
        piece_delay_seconds=arguments.delay,
    )
    try:
        asyncio.run(serve(arguments.port, outcome))
    except KeyboardInterrupt:
        return


main()
