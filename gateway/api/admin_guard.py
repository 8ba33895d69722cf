"""The one door of `/admin/v1`: every operation declares a permission, and one that declares none is closed to all."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel

from gateway.access.keys import KeyRecord, KeyRing
from gateway.access.roles import PERMISSIONS, Permission, may
from gateway.api.token_path import credential_of
from gateway.errors import Forbidden

DECLARATION = "x-breakeven-permission"
"""Stands in the OpenAPI document of every operation, so that the role matrix can be generated from it."""


class ErrorFields(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every refusal, in OpenAI's shape; documented here, written by openai_errors."""

    error: ErrorFields


def needs(permission: Permission) -> dict[str, Any]:
    """The `openapi_extra` that declares what an operation asks of its caller."""
    return {DECLARATION: permission}


def build_guard(keys: KeyRing, now_us: Callable[[], int]) -> Callable[[Request], None]:
    """A dependency for a whole router: authenticates, then checks the declared permission. Default deny."""

    def guard(request: Request) -> None:
        key = keys.authenticate(credential_of(request.scope["headers"]), now_us())
        declared = (getattr(request.scope.get("route"), "openapi_extra", None) or {}).get(DECLARATION)
        if not may(key.role, declared):
            allowed = ", ".join(role for role, held in PERMISSIONS.items() if declared in held) or "nobody"
            raise Forbidden(
                f"The key {key.name!r} has the role {key.role!r}; this is for: {allowed}.", code="role_not_allowed"
            )
        request.state.key = key

    return guard


def _caller(request: Request) -> KeyRecord:
    key: KeyRecord = request.state.key
    return key


Caller = Annotated[KeyRecord, Depends(_caller)]
"""The authenticated key, for handlers behind the guard."""
