"""Downloads: a report's files from the gateway, passed through unchanged, for the period and filters of a page."""

from typing import Literal

import httpx
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from dashboards.frame import view_of
from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.pages.explorer import FILTERS
from dashboards.periods import Period
from dashboards.security import session_cookie
from dashboards.sign_in.sessions import Sessions

Report = Literal["costs", "focus", "utilisation"]
Format = Literal["csv", "parquet"]


def build_export(http: httpx.AsyncClient, sessions: Sessions) -> APIRouter:
    """`/ui/export/costs.csv` and the like, with the explorer's own parameters."""
    router = APIRouter()

    @router.get("/ui/export/{report}.{form}")
    async def export(request: Request, report: Report, form: Format) -> Response:
        session = sessions.find(session_cookie(request.headers.get("cookie")))
        if session is None:
            return RedirectResponse("/ui/sign-in", status_code=303)
        view = view_of(request, session, GatewayClient(http, session.key))
        given = {name: view.query(name) for name in FILTERS} | {"by": view.query("by") or "model"}
        query = view.period.bounds() | (given if report == "costs" else {})
        if report != "utilisation" and (as_of := view.query("as_of")):
            query |= {"as_of": as_of}
        try:
            content, kind = await view.gateway.download(f"/admin/v1/reports/files/{report}", format=form, **query)
        except GatewayRefused as refused:
            return PlainTextResponse(refused.message, status_code=refused.status)
        except GatewayUnreachable as error:
            return PlainTextResponse(str(error), status_code=502)
        disposition = f'attachment; filename="{file_name(report, view.period, form)}"'
        return Response(content, media_type=kind, headers={"content-disposition": disposition})

    return router


def file_name(report: Report, period: Period, form: Format) -> str:
    """Names the first and the last day in the file."""
    return f"breakeven-{report}-{period.since:%Y-%m-%d}-{period.last_moment:%Y-%m-%d}.{form}"
