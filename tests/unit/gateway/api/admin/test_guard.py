"""The role × endpoint matrix, generated from the OpenAPI document: what is declared is exactly what is allowed."""
# pyright: reportUnusedFunction=false

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

import pytest
from fastapi import APIRouter, Depends
from fastapi.testclient import TestClient

from gateway.access.keys import Role
from gateway.access.roles import PERMISSIONS, Permission, may
from gateway.api.admin.guard import DECLARATION, OF_TEAM, build_guard
from gateway.api.app import build_fastapi
from tests.unit.gateway.api.fakes import ROLES, AdminRig, admin_app

BODIES: dict[str, dict[str, Any]] = {
    "/admin/v1/keys": {"name": "new"},
    "/admin/v1/keys/{key_id}/limits": {"limits": {}},
    "/admin/v1/budgets": {"scope": "team", "name": "red", "month_usd": "5"},
    "/admin/v1/reports/reconcile": {"provider": "openai", "export": "x"},
    "/admin/v1/rules": {"text": "x", "expected_active": None},
    "/admin/v1/rules/validate": {"text": "x"},
    "/admin/v1/rules/replay": {"text": "x"},
    "/admin/v1/rules/diff": {"text": "x"},
    "/admin/v1/rules/rollback": {"expected_active": None},
    "/admin/v1/rules/{version}/activate": {"expected_active": None},
}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, str | None, bool]]:
    """Method, path, what it needs, and whether leads may ask it of their own team."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if path.startswith("/admin/"):
                yield method.upper(), path, operation.get(DECLARATION), operation.get(OF_TEAM, False)


def test_every_operation_declares_a_known_permission_and_documents_its_answer() -> None:
    document = admin_app().openapi()
    found = list(operations(document))
    assert len(found) > 20
    assert {permission for _, _, permission, _ in found} <= set(get_args(Permission))
    for method, path, _, _ in found:
        assert document["paths"][path][method.lower()]["summary"].endswith("."), "the summary is no sentence"
        answers = document["paths"][path][method.lower()]["responses"]
        success = next(answer for status, answer in answers.items() if status.startswith("2"))
        is_file = "text/csv" in success["content"]
        assert is_file or success["content"]["application/json"]["schema"], f"{method} {path} documents no model"
        assert "403" in answers


async def test_the_matrix_of_roles_and_endpoints_is_as_declared() -> None:
    rig = await AdminRig().start()
    wrong: list[str] = []
    for method, path, permission, or_lead in operations(admin_app().openapi()):
        assert permission is not None
        body = BODIES.get(path, {}) if method != "GET" else {}
        asked = path.replace("{", "").replace("}", "")
        query = "?old=a&new=b" if path.endswith("/diff") and method == "GET" else ""
        for role in ROLES:
            status = rig.ask(role, method, asked + query, **body).status_code
            is_allowed = may(role, permission) or (or_lead and role == "lead")
            if (status == 403) == is_allowed:
                wrong.append(f"{role} {method} {path}: {status}")
        if rig.client.request(method, asked + query, json=body or None).status_code != 401:
            wrong.append(f"nobody {method} {path}")
    assert not wrong


@pytest.mark.parametrize("role", ROLES)
async def test_an_operation_that_declares_nothing_is_closed_to_everyone(role: Role) -> None:
    rig = await AdminRig().start()
    router = APIRouter(dependencies=[Depends(build_guard(rig.ring, lambda: 0))])

    @router.get("/admin/v1/forgotten")
    async def forgotten() -> int:
        return 1

    @router.get("/admin/v1/misspelt", openapi_extra={DECLARATION: "reports.raed"})
    async def misspelt() -> int:
        return 1

    app = build_fastapi()
    app.include_router(router)
    client = TestClient(app)
    headers = {"authorization": f"Bearer bk-key-{ROLES.index(role)}"}
    assert client.get("/admin/v1/forgotten", headers=headers).status_code == 403
    assert client.get("/admin/v1/misspelt", headers=headers).status_code == 403


def test_each_role_reads_more_than_the_one_before_and_apps_read_nothing() -> None:
    assert not PERMISSIONS["app"]
    ladder = [PERMISSIONS[role] for role in ROLES if role != "lead"]
    assert all(lower < higher for lower, higher in pairwise(ladder))
    assert PERMISSIONS["owner"] == set(get_args(Permission)) - {"team.read"}
    assert PERMISSIONS["lead"] - {"team.read"} < PERMISSIONS["viewer"]


async def test_a_lead_without_a_team_reads_nothing() -> None:
    rig = await AdminRig().start()
    await rig.keys.change("key-1", {"team": None}, author="test")
    rig.ring.replace(rig.keys.ring())
    refused = rig.ask("lead", "GET", "/admin/v1/entries")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "no_team")


async def test_a_lead_is_made_with_its_team() -> None:
    rig = await AdminRig().start()
    refused = rig.ask("owner", "POST", "/admin/v1/keys", name="x", role="lead")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "team")
    assert rig.ask("owner", "POST", "/admin/v1/keys", name="x", role="lead", team="red").status_code == 201


async def test_a_refusal_names_the_roles_that_may() -> None:
    rig = await AdminRig().start()
    answer = rig.ask("viewer", "POST", "/admin/v1/keys", name="x").json()
    assert answer["error"]["code"] == "role_not_allowed"
    assert "owner" in answer["error"]["message"]
