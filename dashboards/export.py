"""The explorer's rows as CSV: the same answer of the gateway, every digit of it."""

import csv
import io
from typing import Any

import httpx
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

from dashboards.frame import view_of
from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.pages.explorer import FILTERS
from dashboards.security import session_cookie
from dashboards.sessions import Sessions

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def build_export(http: httpx.AsyncClient, sessions: Sessions) -> APIRouter:
    """`/ui/export.csv`, with the explorer's own parameters."""
    router = APIRouter()

    @router.get("/ui/export.csv")
    async def export(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        session = sessions.find(session_cookie(request.headers.get("cookie")))
        if session is None:
            return RedirectResponse("/ui/sign-in", status_code=303)
        view = view_of(request, session, GatewayClient(http, session.key))
        given = {name: view.query(name) for name in FILTERS}
        try:
            found = await view.gateway.get(
                "/admin/v1/reports/costs", by=view.query("by") or "model", **view.period.bounds(), **given
            )
        except GatewayRefused as refused:
            return PlainTextResponse(refused.message, status_code=refused.status)
        except GatewayUnreachable as error:
            return PlainTextResponse(str(error), status_code=502)
        name = f"breakeven-{view.period.since:%Y-%m-%d}-{view.period.until:%Y-%m-%d}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(rows_as_csv(found), media_type="text/csv; charset=utf-8", headers=headers)

    return router


def rows_as_csv(found: dict[str, Any]) -> str:
    """One line a group; times are the period's, dollars exact."""
    text = io.StringIO()
    fields = [name for name in found["total"] if name != "group"]
    writer = csv.writer(text)
    writer.writerow(["since", "until", *found["by"], *fields])
    for row in found["rows"]:
        names = [_inert(value or "") for value in row["group"].values()]
        values = ["" if row[name] is None else row[name] for name in fields]
        writer.writerow([found["since"], found["until"], *names, *values])
    return text.getvalue()


def _inert(text: str) -> str:
    """Names are chosen by callers: a spreadsheet must not run one as a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
