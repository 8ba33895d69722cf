"""The web UI under a path that a proxy removes or keeps: whatever a browser resolves from the host's root has it."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from dashboards.__main__ import prefix_among
from dashboards.path_prefix import Prefixed, parse_prefix
from dashboards.sign_in.oidc import OidcSettings

ISSUER = "http://ui.test/keycloak/auth"


async def echo(request: Request) -> Response:
    answer = JSONResponse([request.url.path, request.headers.get("x-forwarded-prefix")])
    for path in ("/ui", "/ui/oidc", "/uix", "/"):
        answer.set_cookie(f"at{path.replace('/', '-')}", "1", path=path)
    return answer


async def lead(request: Request) -> Response:
    return RedirectResponse(request.query_params["to"])


async def events(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(socket.url.path)
    await socket.close()


def browser(prefix: str) -> TestClient:
    routes = [Route("/", echo), Route("/ui/keys", echo), Route("/ui/lead", lead), WebSocketRoute("/ui/events", events)]
    return TestClient(Prefixed(Starlette(routes=routes), prefix), base_url="http://ui.test", follow_redirects=False)


@pytest.mark.parametrize("asked", ["/breakeven/ui/keys", "/ui/keys"])
def test_a_proxy_may_take_the_path_off_or_leave_it(asked: str) -> None:
    assert browser("/breakeven").get(asked).json() == ["/ui/keys", "/breakeven"]


@pytest.mark.parametrize("asked", ["/breakeven", "/breakeven/", "/"])
def test_the_path_alone_is_the_host_itself(asked: str) -> None:
    assert browser("/breakeven").get(asked).json()[0] == "/"


def test_a_path_that_only_begins_alike_is_another() -> None:
    assert browser("/breakeven").get("/breakevens/ui/keys").status_code == 404


def test_events_too() -> None:
    for asked in ("/breakeven/ui/events", "/ui/events"):
        with browser("/breakeven").websocket_connect(asked) as socket:
            assert socket.receive_text() == "/ui/events"


def test_cookies_are_sent_to_the_pages_alone() -> None:
    cookies = browser("/breakeven").get("/ui/keys").headers.get_list("set-cookie")
    paths = [one.split("; ")[1] for one in cookies]
    assert paths == ["Path=/breakeven/ui", "Path=/breakeven/ui/oidc", "Path=/uix", "Path=/"]


@pytest.mark.parametrize(
    ("to", "led"),
    [
        ("/ui/", "/breakeven/ui/"),
        ("/ui/sign-in?next=%2Fui%2Fkeys", "/breakeven/ui/sign-in?next=%2Fui%2Fkeys"),
        ("http://ui.test/ui/", "http://ui.test/breakeven/ui/"),
        ("/breakeven/ui/", "/breakeven/ui/"),
        ("https://id.example/ui/authorize", "https://id.example/ui/authorize"),
        (f"{ISSUER}?state=1", f"{ISSUER}?state=1"),
    ],
)
def test_where_a_browser_is_led(to: str, led: str) -> None:
    assert browser("/breakeven").get("/ui/lead", params={"to": to}).headers["location"] == led


@pytest.mark.parametrize(("prefix", "believed"), [("", None), ("/breakeven", "/breakeven")])
def test_nobody_else_says_what_the_prefix_is(prefix: str, believed: str | None) -> None:
    """The page framework would prefix its scripts' addresses with any value that a client sends."""
    answer = browser(prefix).get("/ui/keys", headers={"X-Forwarded-Prefix": "/evil"})
    assert answer.json() == ["/ui/keys", believed]


@pytest.mark.parametrize(
    ("given", "taken"), [("", ""), ("/", ""), ("/breakeven", "/breakeven"), ("/a/b.c/", "/a/b.c"), ("/uix", "/uix")]
)
def test_a_prefix(given: str, taken: str) -> None:
    assert parse_prefix(given) == taken


@pytest.mark.parametrize("given", ["breakeven", "//evil.example", "/a/../b", "/a b", "/ä", "/ui", "/ui/x", "/a\n"])
def test_what_is_no_prefix(given: str) -> None:
    with pytest.raises(ValueError, match=r"such as /breakeven|where the pages themselves are"):
        parse_prefix(given)


def test_where_people_come_back_to_from_their_identity_provider_is_where_the_pages_are() -> None:
    at_host, under_path = (
        OidcSettings(issuer=ISSUER, client_id="x", client_secret="y", public_url=url)
        for url in ("https://llm.example/", "https://intranet.example/breakeven/")
    )
    assert prefix_among(None, None) == prefix_among(None, at_host) == prefix_among("/", at_host) == ""
    assert prefix_among(None, under_path) == prefix_among("/breakeven/", under_path) == "/breakeven"
    for asked, oidc in (("/other", under_path), ("/breakeven", at_host), ("/", under_path)):
        with pytest.raises(ValueError, match="is not the path of the sign-in's public_url"):
            prefix_among(asked, oidc)
