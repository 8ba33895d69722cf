"""Redirects browsers to the web UI, which is a process of its own that listens on this machine only."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse

FROM_ELSEWHERE = (
    "The web UI listens at {ui_url}, for its own machine only. To reach it from here, run "
    "`ssh -L {port}:127.0.0.1:{port} MACHINE` and open that address, or let a proxy route the path /ui there "
    "(docs/dashboards.md)."
)


def build_way_to_web_ui(ui_url: str, public_url: str | None) -> APIRouter:
    """`/` and `/ui`. `public_url` is where people reach the UI through a proxy, if configured."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    @router.get("/ui", include_in_schema=False)
    async def lead(request: Request) -> Response:
        """`ui_url` is a loopback address: a browser on another machine would look for it there."""
        if is_this_machine(request.headers.get("host", "")):
            return RedirectResponse(ui_url)
        if public_url is not None:
            return RedirectResponse(f"{public_url.rstrip('/')}/ui/")
        if request.url.path == "/":
            return RedirectResponse("ui/")  # relative: a proxy may route it to the web UI, under any path prefix
        return PlainTextResponse(FROM_ELSEWHERE.format(ui_url=ui_url, port=urlsplit(ui_url).port), 404)

    return router


def is_this_machine(host: str) -> bool:
    """Whether this Host header (with or without a port) is a loopback one: a browser here, or one behind a tunnel."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
