"""The door in front of every page: other origins, event channels without a session, and the policy of each answer."""

import contextlib
import re

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboards.security import COOKIE, MOST_BYTES, STRANGERS_BYTES, Guarded, is_same_origin, session_cookie


async def page(request: Request) -> Response:
    return HTMLResponse("<html><script>1</script><script type='module'>2</script></html>")


async def change(request: Request) -> Response:
    return PlainTextResponse("changed")


async def form(request: Request) -> Response:
    async with request.form() as given:
        return PlainTextResponse(",".join(given.keys()))


async def events(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


@pytest.fixture
def client() -> TestClient:
    routes = [
        Route("/ui/", page),
        Route("/ui/change", change, methods=["POST"]),
        Route("/ui/form", form, methods=["POST"]),
        Route("/ui/_nicegui_ws/socket.io", change, methods=["GET", "POST"]),
        WebSocketRoute("/ui/_nicegui_ws/socket.io", events),
    ]
    return TestClient(Guarded(Starlette(routes=routes), lambda cookie: cookie == "good"), base_url="http://ui.test")


def test_every_script_of_a_page_carries_the_nonce_of_its_policy(client: TestClient) -> None:
    client.cookies.set(COOKIE, "good")
    answer = client.get("/ui/")
    policy = answer.headers["content-security-policy"]
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    assert answer.text.count(f'nonce="{nonce.group(1)}"') == answer.text.count("<script") == 2
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/ui/").headers["content-security-policy"] != policy


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://ui.test", 200),
        ("http://evil.test", 403),
        ("null", 403),
        ("http://ui.test.evil", 403),
        ("http://[", 403),
    ],
)
def test_changes_come_from_our_own_pages(client: TestClient, origin: str | None, status: int) -> None:
    headers = {"origin": origin} if origin else {}
    answer = client.post("/ui/change", headers=headers)
    assert answer.status_code == status
    assert status == 200 or "proxy_set_header Host" in answer.text


@pytest.mark.parametrize(
    ("asked", "location"),
    [
        ("/ui/", "/ui/sign-in"),
        ("/ui", "/ui/sign-in"),
        ("/ui/explorer?by=team", "/ui/sign-in?next=%2Fui%2Fexplorer%3Fby%3Dteam"),
        ("/ui/there-is-no-such-page", "/ui/sign-in?next=%2Fui%2Fthere-is-no-such-page"),
        ("/ui/sign-in-or-not", "/ui/sign-in"),
        ("/ui/export/costs.csv", "/ui/sign-in"),
        ("/ui/_nicegui/none", "/ui/sign-in"),
        ("/ui/oidc/start", "/ui/sign-in"),
    ],
)
def test_a_stranger_is_led_to_the_sign_in_before_the_page_framework_is_asked(
    client: TestClient, asked: str, location: str
) -> None:
    answer = client.get(asked, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, location)


@pytest.mark.parametrize("asked", ["/ui/sign-in", "/ui/session", "/ui/healthz", "/ui/static/style.css", "/", "/uix"])
def test_what_anybody_may_ask_for(client: TestClient, asked: str) -> None:
    assert client.get(asked, follow_redirects=False).status_code == 404, "no redirect: the application was asked"


def test_events_need_a_session(client: TestClient) -> None:
    path = "/ui/_nicegui_ws/socket.io"
    assert client.get(path).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(path):
        pass
    client.cookies.set(COOKIE, "good")
    assert client.get(path).status_code == 200
    with client.websocket_connect(path) as socket:
        assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(path, headers={"origin": "http://evil.test"}):
        pass


def test_events_end_with_the_session() -> None:
    heard: list[str] = []

    async def listening(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                heard.append(await socket.receive_text())
                await socket.send_text("heard")

    good = {"good"}
    routes = [WebSocketRoute("/ui/_nicegui_ws/socket.io", listening)]
    client = TestClient(Guarded(Starlette(routes=routes), lambda cookie: cookie in good), base_url="http://ui.test")
    client.cookies.set(COOKIE, "good")
    with client.websocket_connect("/ui/_nicegui_ws/socket.io") as socket:
        socket.send_text("before")
        assert socket.receive_text() == "heard"
        good.clear()
        socket.send_text("after")
    assert heard == ["before"]


def test_a_request_with_two_lengths_is_the_last_of_its_connection(client: TestClient) -> None:
    answer = client.post("/ui/sign-in", headers={"content-length": "5", "transfer-encoding": "chunked"})
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")


def test_a_missing_host_is_never_the_same_origin() -> None:
    assert not is_same_origin("http://a", None)
    assert is_same_origin("https://a:1", "a:1")
    assert not is_same_origin("https://a:2", "a:1")


@pytest.mark.parametrize(("cookie", "most"), [("bad", STRANGERS_BYTES), ("good", MOST_BYTES)])
def test_bodies_are_bounded_and_a_strangers_fills_no_disk(client: TestClient, cookie: str, most: int) -> None:
    client.cookies.set(COOKIE, cookie)
    headers = {"content-type": "multipart/form-data; boundary=b"}
    head, end = b'--b\r\nContent-Disposition: form-data; name="key"; filename="f"\r\n\r\n', b"\r\n--b--\r\n"
    fits = head + b"x" * (most - len(head) - len(end)) + end
    assert client.post("/ui/form", content=fits, headers=headers).text == "key"
    answer = client.post("/ui/form", content=fits + b"x", headers=headers)
    assert (answer.status_code, answer.text) == (413, f"This is longer than {most:,} bytes.")


@pytest.mark.parametrize("other", ['x={"a":1}; ', "a b=c; ", "x; ", '"x="open; ', "é=1; ", "=1; ", "path=/; ", ""])
def test_cookies_of_other_programs_on_the_same_host_sign_nobody_out(other: str) -> None:
    assert session_cookie(f"{other}{COOKIE}=good") == "good"
    assert session_cookie(f"{COOKIE}=good; {other}") == "good"
    assert session_cookie(other) is None
    assert session_cookie(None) is None
