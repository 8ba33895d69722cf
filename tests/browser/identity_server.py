"""The scripted identity provider on a real port, with a page on which a person says who they are, or refuses."""

import contextlib
import json
import threading
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from tests.unit.dashboards.sign_in.identity_provider import IdentityProvider

PEOPLE: dict[str, dict[str, Any]] = {
    "Ann": {"sub": "1", "email": "ann@corp.example", "groups": ["controlling"]},
    "Bob": {"sub": "2", "email": "bob@corp.example", "groups": ["canteen"]},
}
PAGE = "<!doctype html><html lang='en'><title>Corp</title><link rel='icon' href='data:,'><body><h1>Who are you?</h1>{}"


@contextlib.contextmanager
def serve_identities() -> Generator[str]:
    """The provider's address while the block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        _Handler.provider = IdentityProvider(url, now=lambda: int(time.time()))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    provider: IdentityProvider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        if parts.path == "/authorize":
            self._send(httpx.Response(200, html=PAGE.format(_choices(asked))))
        elif parts.path == "/chosen":
            self._send(self._back(asked))
        else:
            self._send(self.provider.answer(httpx.Request("GET", f"{self.provider.url}{self.path}")))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {"authorization": self.headers["authorization"]}
        self._send(
            self.provider.answer(
                httpx.Request("POST", f"{self.provider.url}{self.path}", headers=headers, content=body)
            )
        )

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""

    def _back(self, asked: dict[str, str]) -> httpx.Response:
        """The address that the person came from, with a code for who they are."""
        answer = {"state": asked["state"]}
        if (person := PEOPLE.get(asked["person"])) is None:
            answer["error"] = "access_denied"
        else:
            self.provider.claims = person
            self.provider.codes[asked["person"]] = asked
            answer["code"] = asked["person"]
        return httpx.Response(303, headers={"location": f"{asked['redirect_uri']}?{urlencode(answer)}"})

    def _send(self, answer: httpx.Response) -> None:
        self.send_response(answer.status_code)
        for name in ("content-type", "content-length", "location"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.end_headers()
        self.wfile.write(answer.content)


def _choices(asked: dict[str, str]) -> str:
    links = [(name, name) for name in PEOPLE] + [("nobody", "Cancel")]
    return " ".join(f'<a href="/chosen?{urlencode({**asked, "person": name})}">{label}</a>' for name, label in links)


def environment(url: str, public_url: str, own_key: str) -> dict[str, str]:
    """The environment that `breakeven serve` gives the web UI: who may sign in, and a key to create keys with."""
    given = {
        "issuer": url,
        "client_id": "breakeven-ui",
        "client_secret_env": "TEST_OIDC_SECRET",
        "public_url": public_url,
        "roles": {"controlling": "finance", "platform": "owner"},
    }
    return {
        "BREAKEVEN_UI_OIDC": json.dumps(given),
        "BREAKEVEN_UI_KEY": own_key,
        "TEST_OIDC_SECRET": "s3cret/with:signs",
        "NO_PROXY": "127.0.0.1",
    }
