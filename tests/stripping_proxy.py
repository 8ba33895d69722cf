"""`python -m tests.stripping_proxy PORT TARGET PREFIX`: a proxy that strips a path prefix.

Like nginx with `location PREFIX/ { proxy_pass http://127.0.0.1:TARGET/; }`. Serves one request per connection, and
forwards everything unchanged after an upgrade. All other paths of the host belong to another site.
"""

import asyncio
import contextlib
import re
import sys

SOMEBODY_ELSE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 13\r\nconnection: close\r\n\r\nanother's app"
CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)


async def serve(port: int, target: int, prefix: bytes) -> None:
    async def talk(browser: asyncio.StreamReader, to_browser: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            line, _, headers = (await browser.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            method, path, version = line.split(b" ")
            if not path.startswith(prefix + b"/"):
                to_browser.write(SOMEBODY_ELSE)
            else:
                app, to_app = await asyncio.open_connection("127.0.0.1", target)
                if b"\r\nupgrade:" not in headers.lower():
                    headers = b"connection: close\r\n" + CONNECTION.sub(b"", b"\r\n" + headers).removeprefix(b"\r\n")
                to_app.write(b" ".join((method, path.removeprefix(prefix), version)) + b"\r\n" + headers)
                passing = asyncio.create_task(_pass(browser, to_app))
                await _pass(app, to_browser)
                passing.cancel()
        to_browser.close()

    async with await asyncio.start_server(talk, "127.0.0.1", port) as server:
        await server.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forwards bytes until the other end closes."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()))
