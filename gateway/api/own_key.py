"""`/v1/key`: a key reads what it may do, and what is left of its budget. Knows the stores' protocols only."""
# pyright: reportUnusedFunction=false

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel

from gateway.access.keys import Role
from gateway.api.token_path import credential_of
from gateway.limits.counters import AccountBooks, budget_account
from gateway.limits.openings import Openings
from gateway.limits.values import UNLIMITED, EndUserWindow, Limits, WindowName, window_end, window_id
from gateway.money import format_usd
from gateway.notices.key_budgets import spent_by_key
from gateway.pipeline import Pipeline
from gateway.request.end_user import checked_name
from gateway.sums import ReportStore


class EndUserLeft(BaseModel):
    """An end user's budget under the key, and what is spent and left of it in the window (UTC), by the books."""

    window: EndUserWindow
    window_ends: datetime
    budget_usd: str
    spent_usd: str
    left_usd: str


class OwnKey(BaseModel):
    """The key that asks. `spent_usd` is that of the window (UTC; the month, where the key has no budget) by the books,
    which have a request about two seconds after its last byte. `left_usd` is null without a budget. Budgets of the
    key's team, its project or everything may end before its own. `end_user` is of the one asked for, if the key limits
    each."""

    id: str
    name: str
    role: Role
    team: str | None
    project: str | None
    tags: list[str]
    allowed_models: list[str] | None
    expires_at_us: int | None
    limits: Mapping[str, Any]
    window: WindowName
    window_ends: datetime | None
    spent_usd: str
    budget_usd: str | None
    left_usd: str | None
    end_user: EndUserLeft | None


def build_own_key_router(
    pipeline: Pipeline, reports: ReportStore, openings: Openings, of_end_users: AccountBooks
) -> APIRouter:
    """For keys of every role."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/key")
    async def own_key(request: Request, end_user: str | None = None) -> OwnKey:
        """What this key may do, what it has spent, and what is left of its budget, or of one of its end users'."""
        now_us = pipeline.now_us()
        key = pipeline.keys.authenticate(credential_of(request.scope["headers"]), now_us)
        limits = pipeline.admission.limits.get(key.id, UNLIMITED)
        budget, window = limits.budget_pico_usd, limits.budget_window
        spent = await spent_by_key(key.id, reports, window, now_us, openings)
        return OwnKey(
            id=key.id,
            name=key.name,
            role=key.role,
            team=key.team,
            project=key.project,
            tags=list(key.tags),
            allowed_models=None if key.allowed_models is None else sorted(key.allowed_models),
            expires_at_us=key.expires_at_us,
            limits=_limits_besides_budget(limits),
            window=window,
            window_ends=window_end(window, now_us),
            spent_usd=format_usd(spent),
            budget_usd=None if budget is None else format_usd(budget),
            left_usd=None if budget is None else format_usd(max(0, budget - spent)),
            end_user=None if end_user is None else await _left(key.id, end_user, limits, now_us),
        )

    async def _left(key_id: str, end_user: str, limits: Limits, now_us: int) -> EndUserLeft | None:
        budget, window = limits.end_user_budget_pico_usd, limits.end_user_budget_window
        ends = window_end(window, now_us)
        if budget is None or ends is None:
            return None
        name = checked_name("end_user", end_user)
        account = budget_account(f"{key_id}:{name}", window_id(window, now_us), scope="end_user")
        spent = (await of_end_users([account]))[account]
        return EndUserLeft(
            window=window,
            window_ends=ends,
            budget_usd=format_usd(budget),
            spent_usd=format_usd(spent),
            left_usd=format_usd(max(0, budget - spent)),
        )

    return router


def _limits_besides_budget(limits: Limits) -> dict[str, Any]:
    has_window = limits.end_user_budget_usd is not None
    return {
        name: value
        for name, value in msgspec.to_builtins(limits).items()
        if value and not name.startswith("budget_") and (has_window or name != "end_user_budget_window")
    }
