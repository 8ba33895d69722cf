"""Signing in against a scripted gateway: cookies, CSRF, roles, brute force."""

import asyncio
import re
from collections.abc import Mapping
from html import escape
from typing import Protocol

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboards.security import COOKIE
from dashboards.sign_in.forms import build_sign_in
from dashboards.sign_in.sessions import Sessions, SignInLimit


def answer(request: httpx.Request) -> httpx.Response:
    key = request.headers["authorization"].removeprefix("Bearer ")
    if key == "good":
        return httpx.Response(200, json={"name": "ann", "role": "viewer", "permissions": ["reports.read"]})
    if key == "app":
        return httpx.Response(403, json={"error": {"message": "no", "code": "role_not_allowed"}})
    if key == "busy":
        return httpx.Response(503, json={"error": {"message": "Try again.", "code": "overloaded"}})
    if key == "down":
        raise httpx.ConnectError("refused")
    return httpx.Response(401, json={"error": {"message": "no", "code": "invalid_api_key"}})


class Answer(Protocol):
    """What the test client returns, whichever HTTP library it is built on."""

    @property
    def status_code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class Rig:
    def __init__(self, *, is_secure: bool = False, scheme: str | None = None, address: str = "192.0.2.9") -> None:
        self.now = 0.0
        self.sessions = Sessions(lambda: self.now)
        http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(answer))
        self.app = app = FastAPI()
        limit = SignInLimit(lambda: self.now)
        app.include_router(build_sign_in(http, self.sessions, limit, is_secure=is_secure))
        self.scheme = scheme or ("https" if is_secure else "http")
        self.comes_from(address)

    def comes_from(self, address: str) -> None:
        base = f"{self.scheme}://ui.test"
        self.client = TestClient(self.app, base_url=base, follow_redirects=False, client=(address, 1))

    def token(self) -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.client.get("/ui/sign-in").text)
        assert found is not None
        return found.group(1)

    def post(self, key: str, token: str | None = None) -> "Answer":
        return self.client.post("/ui/sign-in", data={"key": key, "token": self.token() if token is None else token})


def test_a_good_key_starts_a_session_that_keeps_it_from_the_browser() -> None:
    rig = Rig()
    response = rig.post(" good ")
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "good" not in cookie
    session = rig.sessions.find(rig.client.cookies[COOKIE])
    assert session is not None
    assert session.key == "good"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [("/ui/explorer?by=team&period=7d", "/ui/explorer?by=team&period=7d"), ("//evil.example/", "/ui/"), ("", "/ui/")],
)
def test_who_was_on_the_way_to_a_page_comes_to_it_at_the_second_try_too(wanted: str, shown: str) -> None:
    rig = Rig()
    form = {"next": wanted, "token": rig.token()}
    refused = rig.client.post("/ui/sign-in", data={**form, "key": "bad"})
    assert f'name="next" value="{escape(shown)}"' in refused.text
    form_of_it = rig.client.get("/ui/sign-in", params={"next": wanted}).text
    assert f'name="next" value="{escape(shown)}"' in form_of_it
    assert ("page that you wanted" in form_of_it) is (shown != "/ui/")
    assert (
        rig.client.post("/ui/sign-in", data={**form, "token": rig.token(), "key": "good"}).headers["location"] == shown
    )


def test_a_page_that_lost_its_connection_hears_whether_it_would_be_let_in() -> None:
    rig = Rig()
    assert rig.client.get("/ui/session").json() == {"is_signed_in": False}
    rig.post("good")
    assert rig.client.get("/ui/session").json() == {"is_signed_in": True}


def test_behind_tls_cookies_are_secure() -> None:
    assert "Secure" in Rig(is_secure=True).post("good").headers["set-cookie"]
    assert "Secure" in Rig(scheme="https").post("good").headers["set-cookie"], "a proxy said that it came over TLS"


@pytest.mark.parametrize(
    ("key", "status", "text"),
    [
        ("bad", 401, "not known here"),
        ("é", 401, "not known here"),
        ("a\nb", 401, "not known here"),
        ("\0", 401, "not known here"),
        ("app", 401, "another role"),
        ("busy", 502, "cannot say whose key this is: Try again."),
        ("down", 502, "does not answer"),
    ],
)
def test_refusals_say_why_and_start_nothing(key: str, status: int, text: str) -> None:
    rig = Rig()
    response = rig.post(key)
    assert response.status_code == status
    assert text in response.text
    assert COOKIE not in rig.client.cookies


def test_a_form_of_another_browser_is_refused() -> None:
    rig, other = Rig(), Rig()
    assert rig.post("good", other.token()).status_code == 403
    assert rig.post("good", "").status_code == 403
    assert rig.post("good", "é").status_code == 403


def test_guessing_is_slowed_down_and_a_good_key_waits_too() -> None:
    rig = Rig()
    for _ in range(5):
        rig.post("bad")
    assert rig.post("good").status_code == 429
    rig.now += 3
    assert rig.post("good").status_code == 303


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", 429),
        ("2001:db8::1", "2001:db8:0:1::1", 303),
        ("::ffff:192.0.2.1", "192.0.2.1", 429),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", 303),
        ("a socket", "a socket", 429),
    ],
)
def test_whoever_has_many_addresses_is_counted_once(one: str, other: str, status: int) -> None:
    rig = Rig(address=one)
    for _ in range(5):
        rig.post("bad")
    rig.comes_from(other)
    assert rig.post("good").status_code == status


async def test_of_many_tries_at_once_few_are_asked_about() -> None:
    asked: list[httpx.Request] = []

    async def slow(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        await asyncio.sleep(0)
        return answer(request)

    app = FastAPI()
    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(slow))
    app.include_router(build_sign_in(http, Sessions(lambda: 0.0), SignInLimit(lambda: 0.0)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ui.test") as browser:
        token = re.search(r'name="token" value="([0-9a-f]+)"', (await browser.get("/ui/sign-in")).text)
        assert token is not None
        tries = [browser.post("/ui/sign-in", data={"key": f"bad{one}", "token": token[1]}) for one in range(12)]
        statuses = [response.status_code for response in await asyncio.gather(*tries)]
    assert (len(asked), sorted(statuses)) == (5, [401] * 5 + [429] * 7)


@pytest.mark.parametrize("key", ["busy", "down"])
def test_what_says_nothing_of_the_key_is_no_wrong_try(key: str) -> None:
    rig = Rig()
    for _ in range(6):
        rig.post(key)
    assert rig.post("good").status_code == 303


def test_signing_out_needs_the_sessions_own_token() -> None:
    rig = Rig()
    rig.post("good")
    secret = rig.client.cookies[COOKIE]
    for wrong in ("wrong", "wröng"):
        assert rig.client.post("/ui/sign-out", data={"csrf": wrong}).status_code == 303
    session = rig.sessions.find(secret)
    assert session is not None
    rig.client.post("/ui/sign-out", data={"csrf": session.csrf})
    assert rig.sessions.find(secret) is None
