"""The running gateway's own OpenAPI document, asked with real keys: nothing under /admin is open by accident."""

import httpx
import pytest

from gateway.access.keys import Role
from gateway.access.roles import may
from tests.browser.conftest import Running

pytestmark = pytest.mark.integration
DECLARATION = "x-breakeven-permission"


def test_every_operation_refuses_whom_its_declaration_refuses(running: Running) -> None:
    paths = running.ask("/openapi.json")["paths"]
    declared = {
        (method, path): operation.get(DECLARATION)
        for path, item in paths.items()
        if path.startswith("/admin/")
        for method, operation in item.items()
    }
    assert all(declared.values()), "an operation declares no permission"
    assert len(declared) > 30
    keys: tuple[tuple[Role, str], ...] = (("app", running.month.app_key), ("viewer", running.month.viewer_key))
    wrong: list[str] = []
    with httpx.Client(base_url=running.gateway, timeout=60, trust_env=False) as client:
        for (method, path), permission in declared.items():
            address = path.replace("{", "").replace("}", "")
            if client.request(method, address).status_code != 401:
                wrong.append(f"nobody {method} {path}")
            for role, key in keys:
                if may(role, permission):
                    continue  # that it is answered is asked of the same routers without a database
                answer = client.request(method, address, headers={"authorization": f"Bearer {key}"})
                if answer.status_code != 403:
                    wrong.append(f"{role} {method} {path}: {answer.status_code}")
    assert not wrong
