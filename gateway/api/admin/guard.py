"""Access control of `/admin/v1`: each operation declares the permission it needs; without one nobody may call it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, Self, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from gateway.access.keys import KeyRecord, KeyRing
from gateway.access.roles import PERMISSIONS, Permission, may
from gateway.api.token_path import credential_of
from gateway.errors import Forbidden

DECLARATION = "x-breakeven-permission"
"""An extension of each operation in the OpenAPI document, from which the role matrix can be generated."""
OF_TEAM = "x-breakeven-of-team"
"""Likewise, on operations that can be restricted to one team: leads may call them for their own team."""


class ErrorFields(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """An error in OpenAI's format."""

    error: ErrorFields


class AboutTeam(Protocol):
    """A query that can be restricted to one team; implemented by pydantic models."""

    @property
    def team(self) -> str | None: ...

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


Asked = TypeVar("Asked", bound=AboutTeam)


def needs(permission: Permission, *, or_lead: bool = False) -> dict[str, Any]:
    """The `openapi_extra` that declares the permission an operation needs. With `or_lead` the operation must take
    `OnlyTeam` and answer only about that team."""
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
"""The only team that this caller may read about; None means all teams."""


def narrowed(query: Asked, only_team: str | None) -> Asked:
    """The query restricted to that team. Raises Forbidden if it names another."""
    if only_team is None:
        return query
    if query.team not in (None, only_team):
        raise Forbidden(f"This key may read only the team {only_team!r}; leave `team` out.", code="other_team")
    return query.model_copy(update={"team": only_team})
