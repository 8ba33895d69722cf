"""Middleware: what proxies say about callers, and pages in browsers."""

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.assemble import behind_proxy, for_browsers

PAGE = "https://app.example.com"
FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9, 10.0.0.7"}


async def mirror(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the caller's address and the scheme."""
    request = Request(scope)
    client = None if request.client is None else request.client.host
    await JSONResponse([request.url.scheme, client], headers={"x-request-id": "r1"})(scope, receive, send)


@pytest.mark.parametrize(
    ("trusted", "peer", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", ["https", "10.0.0.7"]),
        ("127.0.0.1,10.0.0.0/8", "127.0.0.1", ["https", "203.0.113.9"]),
        ("*", "192.0.2.1", ["https", "203.0.113.9"]),
        ("127.0.0.1", "192.0.2.1", ["http", "192.0.2.1"]),
        ("10.0.0.0/8", "127.0.0.1", ["http", "127.0.0.1"]),
    ],
)
async def test_only_a_trusted_proxy_is_believed(trusted: str, peer: str, expected: list[str]) -> None:
    transport = httpx.ASGITransport(behind_proxy(mirror, trusted), client=(peer, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        assert (await client.get("/", headers=FORWARDED)).json() == expected


@pytest.fixture
def browser() -> TestClient:
    app: ASGIApp = for_browsers(mirror, [PAGE])
    return TestClient(app)


def test_a_browser_asks_before_it_sends_a_key_and_may(browser: TestClient) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
    answer = browser.options("/v1/chat/completions", headers={"origin": PAGE, **wanted})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "x-stainless-os" in answer.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_page_from_the_internet_may_reach_into_this_network(browser: TestClient) -> None:
    """Chrome asks so before it lets one call 127.0.0.1 or 10.0.0.5; refused, it drops the call."""
    wanted = {"access-control-request-method": "POST", "access-control-request-private-network": "true"}
    answer = browser.options("/v1/chat/completions", headers={"origin": PAGE, **wanted})
    assert (answer.status_code, answer.headers["access-control-allow-private-network"]) == (200, "true")


def test_a_page_reads_answer_and_headers(browser: TestClient) -> None:
    answer = browser.get("/v1/models", headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-expose-headers"] == "*"


@pytest.mark.parametrize("origin", ["https://other.example.com", "null"])
def test_another_page_is_not_answered(browser: TestClient, origin: str) -> None:
    asked = browser.options("/v1/models", headers={"origin": origin, "access-control-request-method": "GET"})
    assert asked.status_code == 400
    assert "access-control-allow-origin" not in browser.get("/v1/models", headers={"origin": origin}).headers
