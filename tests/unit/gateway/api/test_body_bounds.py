# pyright: reportUnusedFunction=false
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from gateway.access.keys import KeyRecord, KeyRing, Role, hash_key
from gateway.api.admin.guard import build_guard, needs
from gateway.api.app import build_fastapi
from gateway.api.body_bounds import build_bound
from gateway.api.shedding import UNASKED_BYTES, Load, Shedding
from gateway.errors import BodyTooLarge, Forbidden, RequestError, Unauthenticated

PEPPER = b"pepper"
LONGEST = 1 << 20


def key_ring() -> KeyRing:
    ring, roles = KeyRing(PEPPER), list[Role](["app", "finance", "owner"])
    ring.replace({hash_key(PEPPER, f"bk-{role}"): KeyRecord(role, role, role) for role in roles})
    return ring


def scope_of(path: str, role: str | None) -> dict[str, Any]:
    headers = [] if role is None else [(b"authorization", f"Bearer bk-{role}".encode())]
    return {"type": "http", "method": "POST", "path": path, "headers": headers}


@pytest.mark.parametrize(
    ("path", "role", "expected"),
    [
        ("/v1/chat/completions", "app", LONGEST),
        ("/v1/chat/completions/", "app", LONGEST),
        ("/v1/messages/count_tokens", "app", LONGEST),
        ("/v1/responses/input_tokens", "app", LONGEST),
        ("/v1/conversations", "app", LONGEST),
        ("/v1/conversations/conv_1/items", "app", LONGEST),
        ("/v1/route", "app", LONGEST),
        ("/v1/feedback", "app", BodyTooLarge),
        ("/v1/responses/abc/cancel", "owner", BodyTooLarge),
        ("/admin/v1/reports/reconcile", "finance", LONGEST),
        ("/admin/v1/rules", "owner", LONGEST),
        ("/admin/v1/rules", "app", Forbidden),
        ("/admin/v1/rules", "nobody", Unauthenticated),
        ("/v1/chat/completions", None, Unauthenticated),
        ("/nowhere", None, Unauthenticated),
    ],
)
def test_who_may_send_a_long_body_where(path: str, role: str | None, expected: int | type[RequestError]) -> None:
    bound = build_bound(key_ring(), lambda: 0, LONGEST, LONGEST)
    came = UNASKED_BYTES + 1
    if isinstance(expected, int):
        assert bound(scope_of(path, role), came) == expected
        with pytest.raises(BodyTooLarge, match=r"larger than 1,048,576 bytes.*server\.max_body_megabytes"):
            bound(scope_of(path, role), LONGEST + 1)
        return
    with pytest.raises(expected):
        bound(scope_of(path, role), came)


def test_a_file_may_be_longer() -> None:
    bound = build_bound(key_ring(), lambda: 0, LONGEST, 3 * LONGEST)
    most = 3 * LONGEST + UNASKED_BYTES
    assert bound(scope_of("/v1/files", "app"), LONGEST + 1) == most
    with pytest.raises(BodyTooLarge, match=r"larger than 3,211,264 bytes.*batches\.max_file_megabytes"):
        bound(scope_of("/v1/files/", "app"), most + 1)


class Asked(BaseModel):
    name: str


@pytest.mark.parametrize("is_asked_first", [False, True])
@pytest.mark.parametrize(
    ("role", "megabytes", "status", "said"),
    [
        (None, 1, 401, "No API key was given"),
        ("app", 1, 403, "has the role 'app'"),
        ("owner", 9, 413, "larger than 1,048,576 bytes"),
    ],
)
async def test_a_framework_that_reads_bodies_first_stops_reading_and_says_why(
    role: str | None, megabytes: int, status: int, said: str, is_asked_first: bool
) -> None:
    """Not one byte, where the client waits for leave to send it."""
    ring = key_ring()
    admin = APIRouter(prefix="/admin/v1", dependencies=[Depends(build_guard(ring, lambda: 0))])

    @admin.post("/things", openapi_extra=needs("keys.write"))
    async def things(asked: Asked, request: Request) -> None:
        raise AssertionError("nothing so long comes here")

    application = build_fastapi()
    application.include_router(admin)
    shedding = Shedding(
        application,
        Load(),
        build_bound(ring, lambda: 0, LONGEST, LONGEST),
        whose=lambda scope: "key-1",
        max_requests=9,
        max_buffered_bytes=9 << 20,
    )
    sent = 0

    async def pieces() -> AsyncGenerator[bytes]:
        nonlocal sent
        for _ in range(16 * megabytes):
            sent += 1 << 16
            yield b" " * (1 << 16)

    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer bk-{role}"} if role else {})
    if is_asked_first:
        headers |= {"expect": "100-Continue", "content-length": str(megabytes << 20)}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(shedding), base_url="http://gateway") as client:
        answer = await client.post("/admin/v1/things", content=pieces(), headers=headers)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"]
    assert sent <= (0 if is_asked_first else LONGEST + (1 << 16))


async def test_what_is_no_json_is_told_by_its_place() -> None:
    application = build_fastapi()

    @application.post("/things")
    async def things(asked: Asked) -> None:
        raise AssertionError("no JSON comes here")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://gateway") as client:
        answer = await client.post("/things", content=b'{"name": x}', headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "The body is not valid JSON: Expecting value at character 9.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_json",
    }
