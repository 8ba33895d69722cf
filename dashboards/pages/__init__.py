"""Every page of the UI, in the order of the navigation, registered behind the session check."""

import httpx
from fastapi.responses import RedirectResponse, Response
from nicegui import ui
from starlette.requests import Request

from dashboards.frame import PageSpec, show, view_of
from dashboards.gateway_client import GatewayClient
from dashboards.pages import (
    audit,
    backends,
    batches,
    break_even,
    budgets,
    explorer,
    keys,
    models,
    overview,
    request,
    requests,
    rules,
    try_it,
    utilisation,
)
from dashboards.security import session_cookie
from dashboards.sign_in.destination import sign_in_address
from dashboards.sign_in.sessions import Sessions

PAGE_SECONDS = 10.0
"""How long building a page may take, in addition to one answer of the gateway."""

TEAM = "team.read"
"""Leads see these pages too; the gateway tells them about their own team only."""
PAGES = (
    PageSpec("/", "Overview", "Finance", ("reports.read",), overview.build, has_period=True),
    PageSpec("/explorer", "Explorer", "Finance", ("reports.read", TEAM), explorer.build, has_period=True),
    PageSpec("/break-even", "Break-even", "Finance", ("reports.read",), break_even.build, has_period=True),
    PageSpec("/utilisation", "GPU utilisation", "Finance", ("reports.read",), utilisation.build, has_period=True),
    PageSpec("/budgets", "Budgets", "Finance", ("reports.read", TEAM), budgets.build),
    PageSpec("/requests", "Requests", "Finance", ("entries.read", TEAM), requests.build_list, has_period=True),
    PageSpec("/request", "One request", "", ("entries.read", TEAM), request.build_one),
    PageSpec("/batches", "Batches", "Finance", ("entries.read", TEAM), batches.build),
    PageSpec("/rules", "Routing rules", "Routing", ("rules.read",), rules.build),
    PageSpec("/try", "Try it", "Routing", ("rules.read",), try_it.build),
    PageSpec("/models", "Models and prices", "Routing", ("catalogue.read",), models.build),
    PageSpec("/backends", "Backends and engine", "Operations", ("operations.read",), backends.build),
    PageSpec("/keys", "Keys", "Operations", ("keys.read", TEAM), keys.build),
    PageSpec("/audit", "Audit log", "Operations", ("audit.read",), audit.build),
)


def build_pages(http: httpx.AsyncClient, sessions: Sessions, *, answer_seconds: float) -> None:
    """Register them with the page framework; called once per process."""
    for spec in PAGES:
        _register(spec, http, sessions, answer_seconds + PAGE_SECONDS)


def _register(spec: PageSpec, http: httpx.AsyncClient, sessions: Sessions, slowest_seconds: float) -> None:
    @ui.page(spec.path, response_timeout=slowest_seconds)
    async def page(request: Request) -> Response | None:
        session = sessions.find(session_cookie(request.headers.get("cookie")))
        if session is None:
            wanted = f"{request.url.path}?{request.url.query}".removesuffix("?")
            return RedirectResponse(sign_in_address(wanted), status_code=303)
        if spec.path == "/" and not session.may(*spec.permissions):
            first = next(one.path for one in PAGES if session.may(*one.permissions))
            return RedirectResponse(f"/ui{first}", status_code=303)
        await show(spec, PAGES, view_of(request, session, GatewayClient(http, session.key)))
        return None
