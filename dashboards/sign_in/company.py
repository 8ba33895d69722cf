"""`/ui/oidc/*`: sign-in through the company's identity provider. Each session gets a key of its own, for a day."""
# pyright: reportUnusedFunction=false

import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.security import COOKIE
from dashboards.sign_in.destination import HOME, destination_of
from dashboards.sign_in.oidc import RANKS, Attempt, OidcProvider, OidcSettings, Person, SignInFailed
from dashboards.sign_in.sessions import LONGEST_SECONDS, Sessions

PATHS = frozenset({"/ui/oidc/start", "/ui/oidc/callback"})
ATTEMPT_COOKIE = "breakeven_oidc"
ATTEMPT_SECONDS = 600
MAX_ATTEMPTS = 10_000
CONFIGURATION = "BREAKEVEN_UI_OIDC"
OWN_KEY = "BREAKEVEN_UI_KEY"
TAG = "web-ui"
KEYS = "/admin/v1/keys"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>Sign in · Breakeven</title><link rel="icon" href="../static/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="../static/style.css"></head>
<body class="be-sign-in"><main><form method="get" action="../sign-in"><h1>Not signed in</h1>
<p class="be-problem" role="alert">{problem}</p><button type="submit">Back</button></form></main></body></html>"""


@dataclass(slots=True)
class Attempts:
    """Sign-ins in progress, each identified by a cookie of its browser."""

    now: Callable[[], float]
    _kept: dict[str, tuple[Attempt, str, float]] = field(default_factory=dict[str, tuple[Attempt, str, float]])

    def keep(self, attempt: Attempt, wanted: str) -> str:
        now = self.now()
        self._kept = {name: one for name, one in self._kept.items() if now - one[2] < ATTEMPT_SECONDS}
        while len(self._kept) >= MAX_ATTEMPTS:
            self._kept.pop(next(iter(self._kept)))
        name = secrets.token_urlsafe(24)
        self._kept[name] = (attempt, wanted, now)
        return name

    def take(self, name: str | None) -> tuple[Attempt | None, str]:
        """The attempt, or None, and the page to show afterwards. Works once: an answer cannot be replayed."""
        attempt, wanted, at = self._kept.pop(name or "", (None, HOME, 0.0))
        return (attempt, wanted) if self.now() - at < ATTEMPT_SECONDS else (None, HOME)


def read_oidc() -> tuple[OidcSettings, str] | None:
    """The settings and the UI's own key, from the environment that the gateway sets. Raises ValueError."""
    text = os.environ.get(CONFIGURATION)
    if not text:
        return None
    given = json.loads(text)
    if not isinstance(given, dict) or not all(isinstance(given.get(one, {}), dict) for one in ("roles", "leads")):
        raise ValueError("it must be a JSON object, and so must roles and leads in it")
    settings = OidcSettings(client_secret=os.environ.get(given.pop("client_secret_env"), ""), **given)
    own_key = os.environ.get(OWN_KEY, "")
    if not settings.client_secret or not own_key:
        raise ValueError("OIDC needs the client's secret in its environment variable, and a key in BREAKEVEN_UI_KEY")
    for url in (settings.issuer, settings.public_url):
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"{url} must begin with https://; plain http is for this machine alone")
    if unknown := {*settings.roles.values(), settings.default_role or "viewer"} - set(RANKS):
        raise ValueError(f"{', '.join(sorted(unknown))}: no such role; there are {', '.join(RANKS)}")
    return settings, own_key


def build_oidc(
    provider: OidcProvider, gateway: GatewayClient, sessions: Sessions, *, now: Callable[[], float] = time.time
) -> APIRouter:
    """`gateway` uses the UI's own key, here only to create other keys."""
    router = APIRouter()
    attempts = Attempts(now)
    is_secure = provider.settings.public_url.startswith("https://")

    @router.get("/ui/oidc/start")
    async def start(wanted: Annotated[str, Query(alias="next")] = "") -> Response:
        try:
            url, attempt = await provider.begin()
        except SignInFailed as failed:
            return _refusal(str(failed), 502)
        response = RedirectResponse(url, status_code=303)
        response.set_cookie(
            ATTEMPT_COOKIE, attempts.keep(attempt, destination_of(wanted)), path="/ui/oidc", httponly=True,
            samesite="lax", secure=is_secure, max_age=ATTEMPT_SECONDS,
        )  # fmt: skip
        return response

    @router.get("/ui/oidc/callback")
    async def callback(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
        attempt, wanted = attempts.take(request.cookies.get(ATTEMPT_COOKIE))
        if attempt is None:
            return _refusal("This sign-in was begun too long ago or in another browser. Please try again.", 403)
        if error:
            return _refusal(f"The identity provider refused: {error[:100]}.", 403)
        try:
            person = await provider.finish(attempt, state=state, code=code)
            secret = await _open(person)
        except SignInFailed as failed:
            return _refusal(str(failed), 403)
        except (GatewayRefused, GatewayUnreachable) as failed:
            return _refusal(f"You were identified, but no session could be created: {failed}", 502)
        response = RedirectResponse(wanted, status_code=303)
        response.set_cookie(COOKIE, secret, path="/ui", httponly=True, samesite="lax", secure=is_secure)
        response.delete_cookie(ATTEMPT_COOKIE, path="/ui/oidc")
        return response

    async def _open(person: Person) -> str:
        """Starts a session with a new key in the person's name, which the audit log then shows. Returns its secret."""
        expires_at_us = round((now() + LONGEST_SECONDS) * 1_000_000)
        who = {"name": person.name, "role": person.role, "team": person.team}
        made = await gateway.post(KEYS, {**who, "tags": [TAG], "expires_at_us": expires_at_us})
        me = await gateway.with_key(made["key"]).get("/admin/v1/me")
        permissions = frozenset(me["permissions"])
        return sessions.start(made["key"], person.name, person.role, permissions, key_id=made["id"])[0]

    return router


def _refusal(problem: str, status: int) -> Response:
    return HTMLResponse(PAGE.format(problem=escape(problem)), status_code=status)
