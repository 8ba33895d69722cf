"""What `breakeven doctor` finds in a home, with a stand-in for the gateway at its address."""

import contextlib
import socket
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from gateway.cli.doctor import Finding, examine
from gateway.config.home import Home


def found(home: Home) -> dict[str, Finding]:
    """Nobody listens at the gateway's address: the port is bound meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return {one.name: one for one in examine(home, f"http://127.0.0.1:{taken.getsockname()[1]}")}


@contextlib.contextmanager
def endpoint(answer: Callable[[str, str | None], tuple[int, str]]) -> Generator[str]:
    """A server; `answer` maps a path and authorization to status and body. Yields its origin."""

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, self.headers["authorization"])
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Logs nothing."""

    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def found_beside(home: Home, answer: Callable[[str], bytes], *, status: int = 200) -> dict[str, Finding]:
    """With a gateway that answers each path so."""
    with endpoint(lambda path, _: (status, answer(path).decode())) as origin:
        return {one.name: one for one in examine(home, origin)}
