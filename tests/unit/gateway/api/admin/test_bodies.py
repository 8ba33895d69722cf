"""Stored texts over HTTP: only for owners, and a clear error if there is none."""

import pytest

from gateway.access.keys import Role
from gateway.kept_answers.body_keeper import Bodies
from tests.unit.gateway.api.fakes import AdminRig

PATH = f"/admin/v1/bodies/{'0' * 32}"


async def test_an_owner_reads_a_stored_text_by_name() -> None:
    rig = await AdminRig().start()
    rig.bodies.stored["0" * 32] = Bodies("0" * 32, "key-1", '{"content": "hé"}'.encode(), b"data: \xff")
    found = rig.ask("owner", "GET", PATH)
    assert found.status_code == 200
    assert found.json() == {
        "request_id": "0" * 32,
        "key_id": "key-1",
        "request": '{"content": "hé"}',
        "answer": "data: \ufffd",
    }
    assert len(rig.bodies.readers) == 1


@pytest.mark.parametrize("role", ["app", "viewer", "finance", "editor"])
async def test_nobody_else_does(role: Role) -> None:
    rig = await AdminRig().start()
    assert rig.ask(role, "GET", PATH).status_code == 403
    assert rig.bodies.readers == []


async def test_what_is_not_stored_says_why() -> None:
    rig = await AdminRig().start()
    found = rig.ask("owner", "GET", PATH)
    assert found.status_code == 404
    assert "--keep-bodies" in found.json()["error"]["message"]
