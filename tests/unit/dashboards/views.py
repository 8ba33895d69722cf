"""A page's view without its process: who looks at it, and at which period; and the content of its tables."""

import re
from datetime import UTC, datetime
from html import unescape

import httpx
from starlette.requests import Request

from dashboards.frame import View
from dashboards.gateway_client import GatewayClient
from dashboards.periods import preset
from dashboards.sign_in.sessions import Session


class NamedGateway(GatewayClient):
    """Receives no request; its address need not be valid."""

    def __init__(self, url: str) -> None:
        super().__init__(httpx.AsyncClient(), "bk-1")
        self._url = url

    @property
    def url(self) -> str:
        return self._url


def make_view(
    *permissions: str, url: str = "http://127.0.0.1:8080", gateway: GatewayClient | None = None, query: str = "find=a"
) -> View:
    session = Session("bk-1", "ann", "viewer", frozenset(permissions), "csrf", 0, 0)
    scope = {"type": "http", "scheme": "http", "server": ("127.0.0.1", 8081), "path": "/ui/keys"}
    request = Request({**scope, "headers": [], "query_string": query.encode()})
    return View(gateway or NamedGateway(url), session, request, preset("30d", datetime(2026, 3, 5, tzinfo=UTC)))


def cells_of(table: str) -> list[list[str]]:
    """The text of a table's body, row by row."""
    return [
        [unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall("<td.*?</td>", row)]
        for row in re.findall("<tr>(.*?)</tr>", table.partition("<tbody>")[2])
    ]
