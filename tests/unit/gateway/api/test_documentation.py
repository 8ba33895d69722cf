import re
from itertools import count
from threading import get_ident

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient

from gateway.api.app import build_fastapi
from gateway.api.documentation import build_documentation_router


def test_all_that_the_page_loads_comes_from_here_and_its_policy_allows_nothing_else() -> None:
    client = TestClient(build_fastapi())
    page = client.get("/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert "://" not in page.text
    kinds = {name: client.get(f"/{name}").headers["content-type"] for name in loaded if name != "data:,"}
    assert kinds == {
        "docs/swagger-ui.css": "text/css; charset=utf-8",
        "docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
        "docs/start.js": "text/javascript; charset=utf-8",
        "openapi.json": "application/json",
    }
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "<script>" not in page.text, "the policy forbids scripts inside the page"


def test_no_other_file_is_served() -> None:
    client = TestClient(build_fastapi())
    for name in ("redoc.standalone.js", "..%2f__init__.py", "favicon.png"):
        assert client.get(f"/docs/{name}").status_code in (400, 404)


async def test_the_description_is_built_once_and_beside_the_event_loop() -> None:
    """It takes half a second."""
    built, app = count(1), FastAPI(openapi_url=None)
    app.include_router(build_documentation_router(lambda: {"built": next(built), "thread": get_ident()}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        first, second = [(await client.get("/openapi.json")).json() for _ in range(2)]
    assert first == second
    assert first["thread"] != get_ident()
