"""Signing in and out: plain HTML forms, so that they work before any script has loaded."""

import contextlib
import secrets
from dataclasses import dataclass, field
from html import escape
from typing import Annotated

import httpx
from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable, Json
from dashboards.security import COOKIE
from dashboards.sign_in.destination import HOME, SIGN_IN, destination_of, sign_in_address
from dashboards.sign_in.sessions import FormTokens, Sessions, SignInLimit, counted_as, is_same_secret

NONCE_COOKIE = "breakeven_form"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Sign in · Breakeven</title>
<link rel="icon" href="static/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="static/style.css"></head>
<body class="be-sign-in"><main><form method="post" action="sign-in" autocomplete="off">
<img src="static/mark.svg" alt="" width="40" height="40"><h1>Breakeven</h1>
<p>Sign in with an API key of the role lead, viewer, finance, editor or owner. The owner's key was printed when the
gateway started for the first time; <code>breakeven keys create --role viewer --name NAME</code> makes others.</p>
{problem}{company}<input type="hidden" name="token" value="{token}"><input type="hidden" name="next" value="{wanted}">
<label for="key">API key</label>
<input id="key" name="key" type="password" required autofocus maxlength="200" placeholder="bk-…" spellcheck="false"
{wrong}>
<button type="submit">Sign in</button></form></main></body></html>"""
NO_GATEWAY = "The gateway does not answer. Is it running? `breakeven serve` starts both."
ON_THE_WAY = (
    '<p role="status">You are not signed in, or no longer: a session ends after 8 idle hours. Sign in to get to the '
    "page that you wanted.</p>"
)
COMPANY = '<a class="be-company" href="{start}">Sign in with {name}</a><p>Or with a key:</p>'


def build_sign_in(
    http: httpx.AsyncClient,
    sessions: Sessions,
    limit: SignInLimit,
    *,
    is_secure: bool = False,
    company: str | None = None,
    own_key: str | None = None,
) -> APIRouter:
    """GET and POST of `/ui/sign-in`, GET of `/ui/session`, POST of `/ui/sign-out`.

    `is_secure`: cookies are sent over TLS only, even if no proxy says that a request came over TLS.
    `company` is the identity provider's host; `own_key` revokes the keys that were created for its users' sessions.
    """
    door = Door(http, sessions, limit, SignInForm(company, is_behind_tls=is_secure), own_key)
    router = APIRouter()
    router.add_api_route("/ui/sign-in", door.show, methods=["GET"], response_model=None)
    router.add_api_route("/ui/sign-in", door.let_in, methods=["POST"], response_model=None)
    router.add_api_route("/ui/session", door.tell, methods=["GET"])
    router.add_api_route("/ui/sign-out", door.let_out, methods=["POST"], response_model=None)
    return router


@dataclass(frozen=True, slots=True)
class Door:
    """The endpoints for signing in and out."""

    http: httpx.AsyncClient = field(repr=False)
    sessions: Sessions = field(repr=False)
    limit: SignInLimit
    form: "SignInForm"
    own_key: str | None = field(repr=False)

    async def show(self, request: Request, wanted: Annotated[str, Query(alias="next")] = "") -> Response:
        return self.form.page(request, wanted)

    async def let_in(
        self,
        request: Request,
        key: Annotated[str, Form(max_length=200)] = "",
        token: Annotated[str, Form(max_length=200)] = "",
        wanted: Annotated[str, Form(alias="next")] = "",
    ) -> Response:
        address = counted_as(request.client.host if request.client else "?")
        if (wait := self.limit.wait_seconds(address)) > 0:
            return self.form.page(
                request, wanted, f"Too many wrong keys from here. Try again in {wait:.0f} seconds.", 429
            )
        if not self.form.is_ours(request, token):
            return self.form.page(request, wanted, "This form has expired. Please try again.", 403)
        self.limit.failed(address)  # before the answer: otherwise parallel attempts would not be limited
        try:
            me = await self._whose(key.strip())
        except GatewayRefused as refused:
            if refused.status not in (401, 403):  # it said nothing about the key
                self.limit.withdrawn(address)
                return self.form.page(request, wanted, f"The gateway cannot say whose key this is: {refused}", 502)
            return self.form.page(request, wanted, _why(refused), 401)
        except GatewayUnreachable:
            self.limit.withdrawn(address)
            return self.form.page(request, wanted, NO_GATEWAY, 502)
        self.limit.succeeded(address)
        secret, _ = self.sessions.start(key.strip(), me["name"], me["role"], frozenset(me["permissions"]))
        response = RedirectResponse(destination_of(wanted), status_code=303)
        is_secure = self.form.is_secure(request)
        response.set_cookie(COOKIE, secret, path="/ui", httponly=True, samesite="lax", secure=is_secure)
        return response

    async def _whose(self, key: str) -> Json:
        """The key's owner. Raises GatewayRefused; for text that no header can carry as for any other unknown key."""
        if not (key.isascii() and key.isprintable()):
            raise GatewayRefused(401, "no key of ours", None)
        return await GatewayClient(self.http, key).get("/admin/v1/me")

    async def tell(self, request: Request) -> dict[str, bool]:
        """Tells a page that lost its connection whether its session is still valid."""
        return {"is_signed_in": self.sessions.find(request.cookies.get(COOKIE)) is not None}

    async def let_out(self, request: Request, csrf: Annotated[str, Form(max_length=200)] = "") -> Response:
        secret = request.cookies.get(COOKIE)
        session = self.sessions.find(secret)
        if session is None or not is_same_secret(session.csrf, csrf):
            return RedirectResponse(HOME, status_code=303)
        self.sessions.end(secret)
        if session.key_id is not None and self.own_key is not None:
            with contextlib.suppress(GatewayRefused, GatewayUnreachable):  # it expires within the day by itself
                await GatewayClient(self.http, self.own_key).post(f"/admin/v1/keys/{session.key_id}/revoke", limit=0)
        response = RedirectResponse(SIGN_IN, status_code=303)
        response.delete_cookie(COOKIE, path="/ui")
        return response


class SignInForm:
    """The page, and the check that a submitted form came from it."""

    def __init__(self, company: str | None, *, is_behind_tls: bool) -> None:
        self._company = company
        self._is_behind_tls = is_behind_tls
        self._tokens = FormTokens()

    def is_secure(self, request: Request) -> bool:
        """Whether cookies are for TLS only: by configuration, or because a trusted proxy reported HTTPS."""
        return self._is_behind_tls or request.url.scheme == "https"

    def page(self, request: Request, wanted: str, problem: str = "", status: int = 200) -> Response:
        """`wanted` is the page to show afterwards."""
        nonce = secrets.token_urlsafe(16)
        shown = f'<p class="be-problem" id="problem" role="alert">{escape(problem)}</p>' if problem else ""
        if not problem and destination_of(wanted) != HOME:
            shown = ON_THE_WAY
        text = PAGE.format(
            problem=shown,
            wrong='aria-describedby="problem"' if problem else "",
            company=self._link(wanted),
            token=self._tokens.token(nonce),
            wanted=escape(destination_of(wanted)),
        )
        response = HTMLResponse(text, status_code=status)
        response.set_cookie(
            NONCE_COOKIE,
            nonce,
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=self.is_secure(request),
            max_age=3600,
        )
        return response

    def _link(self, wanted: str) -> str:
        if not self._company:
            return ""
        start = sign_in_address(wanted, path="oidc/start")
        return COMPANY.format(name=escape(self._company), start=escape(start))

    def is_ours(self, request: Request, token: str) -> bool:
        return self._tokens.is_good(request.cookies.get(NONCE_COOKIE), token)


def _why(refused: GatewayRefused) -> str:
    if refused.status == 403:
        return "This key may call models but not read reports. Ask an owner for a key with another role."
    return "This key is not known here, or it was revoked or has expired."
