"""The gateway as `breakeven serve` puts it together, without the engine: `python -m tests.browser.gateway_process`."""

import asyncio
import sys
from pathlib import Path

from gateway.api.assemble import build_app
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.process.server import bind, serve_until_stopped


async def main(home: Path, port: int) -> None:
    gateway = await open_gateway(load_deployment(Home(home), environ={}))
    await gateway.start()
    try:
        with bind("127.0.0.1", port) as listener:
            await serve_until_stopped(build_app(gateway), listener, drain_seconds=2)
    finally:
        await gateway.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
