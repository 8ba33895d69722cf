"""`/openapi.json`, and `/docs` which shows it. The page's assets are part of the installation and served from this
origin."""
# pyright: reportUnusedFunction=false

from collections.abc import Callable, Mapping
from importlib.resources import files
from threading import Lock
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Breakeven's API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; the same is at <a href="openapi.json">openapi.json</a>.</noscript>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
START: Final = """SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null})
"""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No other origins, and no scripts but these files: people paste keys into this page."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
KEPT: Final = {"cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
STATIC: Final = files("fastapi_offline") / "static"
"""Swagger UI's files, the only part of that package that is used."""


def build_documentation_router(document: Callable[[], Mapping[str, Any]]) -> APIRouter:
    """URLs are relative, so that a proxy may serve the gateway under a path prefix."""
    router = APIRouter(include_in_schema=False)
    building, built = Lock(), list[bytes]()

    @router.get("/openapi.json")
    def description() -> Response:
        """In a thread of its own: the first time takes half a second, in which the event loop would serve nobody."""
        with building:
            if not built:
                built.append(msgspec.json.encode(document()))
        return Response(built[0], media_type="application/json")

    @router.get("/docs")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE, headers=HEADERS)

    @router.get("/docs/start.js")
    async def start() -> Response:
        return Response(START, media_type="text/javascript", headers=KEPT)

    @router.get("/docs/{name}")
    async def asset(
        name: Literal["swagger-ui-bundle.js", "swagger-ui.css"],
    ) -> FileResponse:
        return FileResponse(str(STATIC / name), headers=KEPT)

    return router
