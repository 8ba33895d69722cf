"""`/admin/v1/keys` and `/admin/v1/me`: API keys, whose secrets are shown once, on creation."""
# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from gateway.access.roles import PERMISSIONS, require_team
from gateway.access.rotation import SecretStore
from gateway.api.admin.guard import Caller, OnlyTeam, needs
from gateway.api.admin.key_views import (
    ChangeKey,
    CreatedKey,
    CreateKey,
    Key,
    KeyList,
    KeysWanted,
    Me,
    NewLimits,
    RotateKey,
    key_fields,
)
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.stores import KeyChange, KeyStore, ListedKey

Refresh = Callable[[], Awaitable[None]]
Wanted = Annotated[KeysWanted, Query()]


@dataclass(frozen=True, slots=True)
class KeyService:
    """The stores, a callback that makes this process apply changes at once, a clock, and the tiers quotas may name."""

    store: KeyStore
    secrets: SecretStore
    refresh: Refresh = field(repr=False)
    now_us: Callable[[], int] = field(repr=False)
    tiers: Collection[str] = ()

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> None:
        """Validates and stores the change and applies it at once. Raises NotFound and InvalidRequest."""
        self.require_tiers(change.get("limits", {}))
        self.require_future(change.get("expires_at_us"))
        if not await self.store.change(key_id, change, author=author):
            raise _unknown(key_id)
        await self.refresh()

    async def listed(self, wanted: KeysWanted, of_team: str | None = None) -> KeyList:
        """Of all keys, or of one team's."""
        limits, rotations = await self.store.limits(), await self.secrets.rotations()
        known = await self.store.list(wanted.ids)
        litellms = await self.store.litellms()
        last_days = await self.store.last_days() if wanted.last_requests and wanted.limit != 0 else {}

        def listed() -> KeyList:
            found = [one for one in known if of_team in (None, one.record.team) and wanted.matches(one.record)]
            keys = [Key.model_validate(fields(one, one.record.id)) for one in found[wanted.place]]
            return KeyList(keys=keys, matching=len(found))

        def fields(one: ListedKey, key: str) -> dict[str, object]:
            was_litellms = key in litellms
            return key_fields(
                one, limits.get(key, {}), rotations.get(key), last_days.get(key), was_litellms=was_litellms
            )

        return await asyncio.to_thread(listed)  # 50,000 keys would block the event loop for a second

    async def rotate(self, key_id: str, overlap_seconds: int, *, author: str) -> CreatedKey:
        """Takes effect at once. Raises NotFound and Conflict."""
        made = await self.secrets.rotate(key_id, overlap_seconds=overlap_seconds, author=author)
        if made is None:
            raise _unknown(key_id)
        await self.refresh()
        [key] = (await self.listed(KeysWanted(id=[key_id]))).keys
        return CreatedKey(**key.model_dump(), key=made.secret)

    def require_future(self, expires_at_us: int | None) -> None:
        """Raises InvalidRequest for an expiry in the past, most often a mistake in the unit."""
        if expires_at_us is not None and expires_at_us <= self.now_us():
            raise InvalidRequest(
                "`expires_at_us` is in the past; it counts microseconds since 1970 (UTC). To end a key now, revoke it.",
                param="expires_at_us",
            )

    def require_tiers(self, limits: Mapping[str, Any]) -> None:
        """Raises InvalidRequest for a quota on an unknown tier: it would never apply."""
        unknown = sorted(limits.get("tier_quotas", {}).keys() - set(self.tiers))
        if unknown:
            known = ", ".join(sorted(self.tiers)) or "none"
            raise InvalidRequest(
                f"There is no tier {unknown[0][:64]!r} in breakeven.yaml; there are: {known}.", param="limits"
            )


def build_keys_router(keys: KeyService) -> APIRouter:
    """The paths `/keys` and `/me`."""
    router = APIRouter(tags=["admin: keys"])

    @router.get("/me", openapi_extra=needs("self.read"))
    async def me(caller: Caller) -> Me:
        """The key of this request, and what its role allows."""
        return Me(
            id=caller.id,
            name=caller.name,
            role=caller.role,
            team=caller.team,
            permissions=sorted(PERMISSIONS[caller.role]),
        )

    @router.get("/keys", response_model=KeyList, openapi_extra=needs("keys.read", or_lead=True))
    async def list_keys(only_team: OnlyTeam, wanted: Wanted) -> Response:
        """Keys without their secrets: all of them, or those with these ids or search words, in pages."""
        found = await keys.listed(wanted, only_team)
        return Response(await asyncio.to_thread(found.model_dump_json), media_type="application/json")

    @router.post("/keys", status_code=201, openapi_extra=needs("keys.write"))
    async def create_key(asked: CreateKey, caller: Caller) -> CreatedKey:
        """Create a key. Its secret is shown only in this response."""
        require_team(asked.role, asked.team)
        keys.require_tiers(asked.limits)
        keys.require_future(asked.expires_at_us)
        created, secret = await keys.store.create(asked.new_key(), author=caller.name, limits=asked.limits)
        await keys.refresh()
        return CreatedKey.model_validate({**key_fields(created, asked.limits), "key": secret})

    @router.put("/keys/{key_id}/limits", openapi_extra=needs("keys.write"))
    async def set_limits(key_id: str, new: NewLimits, caller: Caller, wanted: Wanted) -> KeyList:
        """Replace a key's limits. They take effect in every process within a second."""
        await keys.change(key_id, {"limits": new.limits}, author=caller.name)
        return await keys.listed(wanted)

    @router.patch("/keys/{key_id}", openapi_extra=needs("keys.write"))
    async def change_key(key_id: str, asked: ChangeKey, caller: Caller, wanted: Wanted) -> KeyList:
        """Change a key's name, team, project, tags, models, expiry or limits. It takes effect in every process within a
        second; past spend stays booked where it was. To change the role, create another key."""
        await keys.change(key_id, asked.change(), author=caller.name)
        return await keys.listed(wanted)

    @router.post("/keys/{key_id}/rotate", openapi_extra=needs("keys.write"))
    async def rotate_key(key_id: str, caller: Caller, asked: RotateKey | None = None) -> CreatedKey:
        """Give a key a new secret, which is shown only in this response. The key keeps its id, limits, spend and stored
        data. Older secrets work until the overlap ends, or until their own end if that is earlier: rotating again never
        prolongs them."""
        return await keys.rotate(key_id, (asked or RotateKey()).overlap_seconds, author=caller.name)

    @router.post("/keys/{key_id}/end-overlap", openapi_extra=needs("keys.write"))
    async def end_overlap(key_id: str, caller: Caller, wanted: Wanted) -> KeyList:
        """End all older secrets of a key, in every process within a second. Its newest keeps working."""
        if not await keys.secrets.end_overlap(key_id, author=caller.name):
            raise _unknown(key_id)
        await keys.refresh()
        return await keys.listed(wanted)

    @router.post("/keys/{key_id}/revoke", openapi_extra=needs("keys.write"))
    async def revoke_key(key_id: str, caller: Caller, wanted: Wanted) -> KeyList:
        """Revoke a key. It stops working in every process within a second. No key can revoke itself."""
        if key_id == caller.id:
            raise Conflict("This is the key you are using; revoke it with another owner's key.", code="own_key")
        if not await keys.store.revoke(key_id, author=caller.name):
            raise _unknown(key_id)
        await keys.refresh()
        return await keys.listed(wanted)

    return router


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"There is no key {key_id[:64]!r}.", code="key_not_found")
