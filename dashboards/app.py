"""The UI process put together: sign-in, static files and the pages, behind the security layer."""

import time
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dashboards.export import build_export
from dashboards.gateway_client import open_gateway
from dashboards.pages import build_pages
from dashboards.rules_assist import build_rules_assist
from dashboards.security import Guarded
from dashboards.sessions import Sessions, SignInLimit
from dashboards.sign_in import build_sign_in

HERE = Path(__file__).parent
MARK = HERE / "static" / "mark.svg"


def build_app(gateway_url: str, *, is_secure: bool = False) -> ASGIApp:
    """The ASGI application. Pages live in one process: sessions are in its memory."""
    http = open_gateway(gateway_url)
    sessions = Sessions(time.monotonic)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(build_sign_in(http, sessions, SignInLimit(time.monotonic), is_secure=is_secure))
    app.include_router(build_export(http, sessions))
    app.include_router(build_rules_assist(http, sessions))
    app.mount("/ui/static", StaticFiles(directory=HERE / "static"))

    @app.get("/")
    async def root() -> Response:  # pyright: ignore[reportUnusedFunction]
        return RedirectResponse("/ui/")

    @app.get("/ui/healthz")
    async def healthz() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    nicegui_app.colors(
        primary="#0f6b62", positive="#14713b", negative="#b3261e", warning="#8a5a00", dark_page="#131415"
    )
    build_pages(http, sessions)
    ui.run_with(
        app,
        mount_path="/ui",
        title="Breakeven",
        favicon=MARK,
        language="en-GB",
        dark=None,
        tailwind=False,
        gzip_middleware_factory=None,
        show_welcome_message=False,
        reconnect_timeout=30.0,
    )
    guarded = Guarded(app, lambda cookie: sessions.find(cookie) is not None)
    return GZipMiddleware(guarded, minimum_size=1000)
