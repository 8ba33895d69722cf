"""The one door of `/admin/v1`: every operation declares a permission, and one that declares none is closed to all."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, Self, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from gateway.access.keys import KeyRecord, KeyRing
from gateway.access.roles import PERMISSIONS, Permission, may
from gateway.api.token_path import credential_of
from gateway.errors import Forbidden

DECLARATION = "x-breakeven-permission"
"""Stands in the OpenAPI document of every operation, so that the role matrix can be generated from it."""
OF_TEAM = "x-breakeven-of-team"
"""Stands there where the operation can be narrowed to one team: then leads may ask it, of their own."""


class ErrorFields(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every refusal, in OpenAI's shape; documented here, written by openai_errors."""

    error: ErrorFields


class AboutTeam(Protocol):
    """A question that can be asked of one team: one of pydantic's models."""

    @property
    def team(self) -> str | None: ...

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


Asked = TypeVar("Asked", bound=AboutTeam)


def needs(permission: Permission, *, or_lead: bool = False) -> dict[str, Any]:
    """The `openapi_extra` that declares what an operation asks of its caller. With `or_lead` it takes `OnlyTeam`, and
    answers of that team alone."""
    return {DECLARATION: permission} | ({OF_TEAM: True} if or_lead else {})


def build_guard(keys: KeyRing, now_us: Callable[[], int]) -> Callable[[Request], None]:
    """A dependency for a whole router: authenticates, then checks the declared permission. Default deny."""

    def guard(request: Request) -> None:
        key = keys.authenticate(credential_of(request.scope["headers"]), now_us())
        extra = getattr(request.scope.get("route"), "openapi_extra", None) or {}
        is_for_leads = extra.get(OF_TEAM) is True
        request.state.key, request.state.only_team = key, None
        if may(key.role, extra.get(DECLARATION)):
            return
        if not (is_for_leads and may(key.role, "team.read")):
            raise Forbidden(
                f"The key {key.name!r} has the role {key.role!r}; this is for: {_allowed(extra)}.",
                code="role_not_allowed",
            )
        if key.team is None:
            raise Forbidden(f"The key {key.name!r} leads no team. An owner can give it one.", code="no_team")
        request.state.only_team = key.team

    return guard


def _allowed(extra: Mapping[str, Any]) -> str:
    held = {extra.get(DECLARATION), "team.read" if extra.get(OF_TEAM) is True else None}
    return ", ".join(role for role, row in PERMISSIONS.items() if not held.isdisjoint(row)) or "nobody"


def _caller(request: Request) -> KeyRecord:
    key: KeyRecord = request.state.key
    return key


Caller = Annotated[KeyRecord, Depends(_caller)]
"""The authenticated key, for handlers behind the guard."""


def _only_team(request: Request) -> str | None:
    team: str | None = request.state.only_team
    return team


OnlyTeam = Annotated[str | None, Depends(_only_team)]
"""Of which team alone this caller may be told; None: of all."""


def narrowed(query: Asked, only_team: str | None) -> Asked:
    """The same question, of that team alone. Raises Forbidden where it names another."""
    if only_team is None:
        return query
    if query.team not in (None, only_team):
        raise Forbidden(f"This key may read only the team {only_team!r}; leave `team` out.", code="other_team")
    return query.model_copy(update={"team": only_team})
