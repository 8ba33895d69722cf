"""The command line of a worker. What serves is imported later: see `unsearched`."""

import argparse
import asyncio
import sys
from pathlib import Path

from gateway import worker
from gateway.errors import BreakevenError
from gateway.process.log_lines import set_up_log
from gateway.process.server import loop_factory
from gateway.process.unawaited_output import unawaited_output
from native import cycles


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m gateway.worker", description=worker.__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True, help="how many of them share the port")
    parser.add_argument("--parent", type=int, required=True, help="the parent's process id; the worker ends with it")
    parser.add_argument("--ready", type=Path, required=True, help="a file to create once requests are accepted")
    parser.add_argument("--beats", type=int, help="a file descriptor to write to while the event loop runs")
    parser.add_argument("--engine-url")
    parser.add_argument("--ui-url")
    options = parser.parse_args()
    with unawaited_output():
        with cycles.unsearched():
            from gateway.worker.serving import serve
        try:
            set_up_log()
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(serve(options))
        except BreakevenError as error:
            print(f"breakeven worker: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
