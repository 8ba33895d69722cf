"""A proxy in front of the real gateway that can hold its answers back."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


@contextmanager
def slow_gateway(gateway: str) -> Generator[tuple[str, threading.Event]]:
    """Its base URL, and an event: while it is cleared, every answer but /healthz's is held back."""
    goes_on = threading.Event()
    goes_on.set()

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._relay()

        def do_POST(self) -> None:
            self._relay()

        def _relay(self) -> None:
            if self.path != "/healthz":
                goes_on.wait()
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: self.headers[name] for name in ("authorization", "content-type") if name in self.headers}
            url = f"{gateway}{self.path}"
            answer = httpx.request(self.command, url, content=body, headers=headers, timeout=240, trust_env=False)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", goes_on
        finally:
            goes_on.set()
            server.shutdown()
