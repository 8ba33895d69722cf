"""The UI process put together: sign-in, static files and the pages, behind the security layer."""
# pyright: reportUnusedFunction=false

import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dashboards.export import build_export
from dashboards.gateway_client import ANSWER_SECONDS, GatewayClient, open_gateway
from dashboards.pages import build_pages
from dashboards.path_prefix import Prefixed, prefix_of
from dashboards.rules.assist import build_rules_assist
from dashboards.security import OPEN, Guarded
from dashboards.sign_in.company import PATHS as OIDC_PATHS
from dashboards.sign_in.company import build_oidc
from dashboards.sign_in.forms import build_sign_in
from dashboards.sign_in.oidc import OidcProvider, OidcSettings
from dashboards.sign_in.session_files import SessionFiles
from dashboards.sign_in.sessions import Sessions, SignInLimit

HERE = Path(__file__).parent
MARK = HERE / "static" / "mark.svg"
NO_SUCH_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>No such page · Breakeven</title><link rel="icon" href="{root}/static/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="{root}/static/style.css"></head>
<body class="be-sign-in"><main><form method="get" action="{root}/"><h1>No such page</h1>
<p>The address is mistyped or the page moved.</p><button type="submit">To the overview</button></form></main></body>
</html>"""


@dataclass(frozen=True, slots=True)
class UiSettings:
    """`state` is the directory in which sessions survive a restart. `oidc` is the provider's settings and the UI's own
    API key. `path_prefix`, such as /breakeven, is what a proxy puts before /ui."""

    gateway_url: str
    is_secure: bool = False
    state: Path | None = None
    oidc: tuple[OidcSettings, str] | None = None
    answer_seconds: float = ANSWER_SECONDS
    path_prefix: str = ""


def build_app(settings: UiSettings) -> ASGIApp:
    """The ASGI application. It must run in one process, which keeps all open pages in memory."""
    http = open_gateway(settings.gateway_url, settings.answer_seconds)
    sessions = Sessions(time.time, SessionFiles(settings.state) if settings.state is not None else None)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    company, own_key = None, None
    if settings.oidc is not None:
        oidc, own_key = settings.oidc
        company = urlsplit(oidc.issuer).hostname
        app.include_router(build_oidc(OidcProvider(oidc), GatewayClient(http, own_key), sessions))
    limit = SignInLimit(time.monotonic)
    app.include_router(
        build_sign_in(http, sessions, limit, is_secure=settings.is_secure, company=company, own_key=own_key)
    )
    app.include_router(build_export(http, sessions))
    app.include_router(build_rules_assist(http, sessions))
    app.mount("/ui/static", StaticFiles(directory=HERE / "static"))

    @app.get("/")
    async def root() -> Response:
        return RedirectResponse("/ui/")

    @app.get("/ui/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    nicegui_app.colors(
        primary="#0f6b62", positive="#14713b", negative="#b3261e", warning="#8a5a00", dark_page="#131415"
    )
    nicegui_app.config.quasar_config["loadingBar"]["skipHijack"] = True  # its bar has no accessible name
    nicegui_app.add_exception_handler(404, no_such_page)
    build_pages(http, sessions, answer_seconds=settings.answer_seconds)
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
    open_paths = OPEN if settings.oidc is None else OPEN | OIDC_PATHS
    guarded = Guarded(app, sessions.is_good, open_paths=open_paths)
    return GZipMiddleware(Prefixed(guarded, settings.path_prefix), minimum_size=1000)


async def no_such_page(request: Request, error: Exception) -> Response:
    """Replaces the framework's own page for 404, which links nowhere."""
    return HTMLResponse(NO_SUCH_PAGE.format(root=f"{prefix_of(request)}/ui"), status_code=404)
