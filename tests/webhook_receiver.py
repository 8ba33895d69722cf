"""A webhook on the loopback interface that records what it is sent and answers as instructed."""

import json
import ssl
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True, slots=True)
class Receiver:
    """`url` ends in a secret, as those of chat services do."""

    url: str
    documents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@contextmanager
def webhook_receiver(answers: Sequence[int] = (), tls: ssl.SSLContext | None = None) -> Generator[Receiver]:
    """Answers with these statuses, in order, and then with 200. A 307 redirects to itself."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            documents.append(json.loads(body))
            self.send_response(left.pop(0) if left else 200)
            self.send_header("location", self.path)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        found = Receiver(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/hooks/T0SECRET")
        documents = found.documents
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
