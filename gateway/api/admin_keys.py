"""`/admin/v1/keys` and `/admin/v1/me`: who may call, created with a secret that is shown once."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, field_validator

from gateway.access.keys import Role
from gateway.access.roles import PERMISSIONS, require_team
from gateway.api.admin_guard import Caller, OnlyTeam, needs
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.limits.admission import Limits, parse_limits
from gateway.stores import KeyChange, KeyStore, ListedKey, NewKey

Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w .:/@-]+$")]

NULL = {"type": "null"}


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    """As they are stored: what is null is left out."""
    limits = {name: value for name, value in given.items() if value is not None}
    parse_limits(limits)
    if small := [name for name, value in limits.items() if isinstance(value, int) and value < 1]:
        raise ValueError(f"{small[0]} must be at least 1; revoke the key to stop it, or leave it out for no limit")
    return limits


def _limits_schema() -> dict[str, Any]:
    """Without references: the OpenAPI document has no place for the definitions of another library. Each may be null,
    which is as good as left out."""
    definitions = msgspec.json.schema(Limits)["$defs"]

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inline(definitions[part["$ref"].rpartition("/")[2]])
        return {name: inline(one) for name, one in part.items()}

    def or_null(part: dict[str, Any]) -> dict[str, Any]:
        return part if NULL in part.get("anyOf", ()) else {"anyOf": [part, NULL]}

    limits = inline(definitions["Limits"])
    return limits | {"properties": {name: or_null(one) for name, one in limits["properties"].items()}}


KeyLimits = Annotated[dict[str, Any], AfterValidator(_limits), WithJsonSchema(_limits_schema())]
"""Documented by the type that admission reads them with."""


class CreateKey(BaseModel):
    """Give an app its own key; a team and a project make its cost appear under them."""

    model_config = ConfigDict(extra="forbid")

    name: Label
    role: Role = "app"
    team: Label | None = None
    project: Label | None = None
    tags: list[Label] = Field(default_factory=list[str], max_length=16)
    allowed_models: list[str] | None = Field(default=None, max_length=200)
    expires_at_us: int | None = Field(default=None, ge=0)
    limits: KeyLimits = Field(default_factory=dict[str, Any])
    keeps_bodies: bool = Field(default=False, description="Store its prompts and answers, encrypted; see retention")

    def new_key(self) -> NewKey:
        allowed = tuple(self.allowed_models) if self.allowed_models is not None else None
        return NewKey(
            self.name,
            self.role,
            self.team,
            self.project,
            tuple(self.tags),
            allowed,
            self.expires_at_us,
            self.keeps_bodies,
        )


class ChangeKey(BaseModel):
    """What is to be another; what is left out stays. null takes away: no team, every model, no end."""

    model_config = ConfigDict(extra="forbid")

    name: Label | None = None
    team: Label | None = None
    project: Label | None = None
    tags: list[Label] | None = Field(default=None, max_length=16)
    allowed_models: list[str] | None = Field(default=None, max_length=200)
    expires_at_us: int | None = Field(default=None, ge=0)
    limits: KeyLimits | None = Field(default=None, description="All of them; what is left out is not limited any more")

    @field_validator("name")
    @classmethod
    def _needs_name(cls, given: str | None) -> str:
        if given is None:
            raise ValueError("a key needs a name; leave it out to keep the one it has")
        return given

    def change(self) -> KeyChange:
        """Only what was given."""
        given: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        empty = {"tags": [], "limits": {}}
        return cast("KeyChange", given | {name: given[name] or none for name, none in empty.items() if name in given})


class NewLimits(BaseModel):
    """All of a key's limits; what is left out is not limited any more."""

    model_config = ConfigDict(extra="forbid")

    limits: KeyLimits


class Key(BaseModel):
    id: str
    name: str
    role: Role
    team: str | None
    project: str | None
    tags: list[str]
    allowed_models: list[str] | None
    created_at_us: int
    expires_at_us: int | None
    revoked_at_us: int | None
    limits: KeyLimits
    keeps_bodies: bool


class CreatedKey(Key):
    """`key` is the secret: shown this once."""

    key: str


class KeyList(BaseModel):
    keys: list[Key]


class Me(BaseModel):
    """The caller's own key and what its role allows."""

    id: str
    name: str
    role: Role
    team: str | None
    permissions: list[str]


Refresh = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class KeyService:
    """The store, how this process takes a change over at once, the clock, and the tiers that a quota may name."""

    store: KeyStore
    refresh: Refresh = field(repr=False)
    now_us: Callable[[], int] = field(repr=False)
    tiers: Collection[str] = ()

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> None:
        """Checked, stored and in force. Raises NotFound."""
        self.require_tiers(change.get("limits", {}))
        self.require_future(change.get("expires_at_us"))
        if not await self.store.change(key_id, change, author=author):
            raise _unknown(key_id)
        await self.refresh()

    def require_future(self, expires_at_us: int | None) -> None:
        """Raises InvalidRequest for an end that is past, which is most often a mistake in its unit."""
        if expires_at_us is not None and expires_at_us <= self.now_us():
            raise InvalidRequest(
                "`expires_at_us` is past; it counts microseconds since 1970 (UTC). To end a key now, revoke it.",
                param="expires_at_us",
            )

    def require_tiers(self, limits: Mapping[str, Any]) -> None:
        """Raises InvalidRequest for a quota that would count nothing: such a key could spend nothing."""
        unknown = sorted(limits.get("tier_quotas", {}).keys() - set(self.tiers))
        if unknown:
            known = ", ".join(sorted(self.tiers)) or "none"
            raise InvalidRequest(
                f"There is no tier {unknown[0][:64]!r} in breakeven.yaml; there are: {known}.", param="limits"
            )


def build_keys_router(keys: KeyService) -> APIRouter:
    """The paths `/keys` and `/me`."""
    router = APIRouter(tags=["admin: keys"])

    async def every(of_team: str | None = None) -> KeyList:
        limits = await keys.store.limits()
        listed = [one for one in await keys.store.list() if of_team in (None, one.record.team)]
        return KeyList(keys=[Key.model_validate(_fields(one, limits.get(one.record.id, {}))) for one in listed])

    @router.get("/me", openapi_extra=needs("self.read"))
    async def me(caller: Caller) -> Me:  # pyright: ignore[reportUnusedFunction]
        """Who am I, and what may I do."""
        return Me(
            id=caller.id,
            name=caller.name,
            role=caller.role,
            team=caller.team,
            permissions=sorted(PERMISSIONS[caller.role]),
        )

    @router.get("/keys", openapi_extra=needs("keys.read", or_lead=True))
    async def list_keys(only_team: OnlyTeam) -> KeyList:  # pyright: ignore[reportUnusedFunction]
        """All keys without their secrets."""
        return await every(only_team)

    @router.post("/keys", status_code=201, openapi_extra=needs("keys.write"))
    async def create_key(asked: CreateKey, caller: Caller) -> CreatedKey:  # pyright: ignore[reportUnusedFunction]
        """Create a key. Its secret is in this answer and nowhere else."""
        require_team(asked.role, asked.team)
        keys.require_tiers(asked.limits)
        keys.require_future(asked.expires_at_us)
        created, secret = await keys.store.create(asked.new_key(), author=caller.name, limits=asked.limits)
        await keys.refresh()
        return CreatedKey.model_validate({**_fields(created, asked.limits), "key": secret})

    @router.put("/keys/{key_id}/limits", openapi_extra=needs("keys.write"))
    async def set_limits(key_id: str, new: NewLimits, caller: Caller) -> KeyList:  # pyright: ignore[reportUnusedFunction]
        """Replace a key's limits; they hold in every process within a second."""
        await keys.change(key_id, {"limits": new.limits}, author=caller.name)
        return await every()

    @router.patch("/keys/{key_id}", openapi_extra=needs("keys.write"))
    async def change_key(key_id: str, asked: ChangeKey, caller: Caller) -> KeyList:  # pyright: ignore[reportUnusedFunction]
        """Change what a key is called, whose cost it is, its tags, models, end and limits: in every process within a
        second, from then on. What it spent stays booked where it was; its role stays, for that make another key."""
        await keys.change(key_id, asked.change(), author=caller.name)
        return await every()

    @router.post("/keys/{key_id}/revoke", openapi_extra=needs("keys.write"))
    async def revoke_key(key_id: str, caller: Caller) -> KeyList:  # pyright: ignore[reportUnusedFunction]
        """Revoke a key: it stops working in every process within a second. Nobody can revoke their own."""
        if key_id == caller.id:
            raise Conflict("This is the key you are using; revoke it with another owner's key.", code="own_key")
        if not await keys.store.revoke(key_id, author=caller.name):
            raise _unknown(key_id)
        await keys.refresh()
        return await every()

    return router


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"There is no key {key_id[:64]!r}.", code="key_not_found")


def _fields(listed: ListedKey, limits: Mapping[str, Any]) -> dict[str, object]:
    record = listed.record
    return {
        "id": record.id,
        "name": record.name,
        "role": record.role,
        "team": record.team,
        "project": record.project,
        "tags": list(record.tags),
        "allowed_models": sorted(record.allowed_models) if record.allowed_models is not None else None,
        "created_at_us": listed.created_at_us,
        "expires_at_us": record.expires_at_us,
        "revoked_at_us": record.revoked_at_us,
        "limits": dict(limits),
        "keeps_bodies": record.keeps_bodies,
    }
