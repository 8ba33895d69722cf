"""`/ui/rules/complete`: completions for the rules editor, from the gateway's schema and its models."""

import asyncio
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Body, Request
from fastapi.responses import JSONResponse, Response

from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.rules.completion import ANY, Path, complete
from dashboards.security import session_cookie
from dashboards.sign_in.sessions import Sessions

LONGEST_TEXT = 1_000_000
FROM: Path = ("rules", ANY, "choose", "from")


def build_rules_assist(http: httpx.AsyncClient, sessions: Sessions) -> APIRouter:
    """Answers signed-in users only; the page itself decides who may edit."""
    router = APIRouter()

    @router.post("/ui/rules/complete")
    async def suggest(request: Request, before: Annotated[str, Body(embed=True, max_length=LONGEST_TEXT)]) -> Response:
        session = sessions.find(session_cookie(request.headers.get("cookie")))
        if session is None:
            return JSONResponse({"word": "", "options": []}, status_code=401)
        gateway = GatewayClient(http, session.key)
        try:
            schema, found = await asyncio.gather(gateway.get("/admin/v1/rules/schema"), gateway.get("/admin/v1/models"))
        except (GatewayRefused, GatewayUnreachable):
            return JSONResponse({"word": "", "options": []}, status_code=502)
        word, options = complete(before, schema, known_names(found["models"]))
        shown = [{"label": one.label, "insert": one.insert, "detail": one.detail, "kind": one.kind} for one in options]
        return JSONResponse({"word": word, "options": shown})

    return router


def known_names(models: list[dict[str, Any]]) -> dict[Path, list[str]]:
    """Names of this deployment, by the paths where they may be used."""
    names = [one["name"] for one in models]
    backends = sorted({one["backend"] for one in models})
    return {FROM: names, (*FROM, ANY): names, ("models", ANY, "backend"): backends}
