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
from gateway.limits.openings import Openings
from gateway.limits.values import UNLIMITED, WindowName, window_end
from gateway.money import format_usd
from gateway.notices.key_budgets import spent_by_key
from gateway.pipeline import Pipeline
from gateway.sums import ReportStore


class OwnKey(BaseModel):
    """The key that asks. `spent_usd` is that of the window (UTC; the month, where the key has no budget) by the books,
    which have a request about two seconds after its last byte. `left_usd` is null without a budget. Budgets of the
    key's team, its project or everything may end before its own."""

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


def build_own_key_router(pipeline: Pipeline, reports: ReportStore, openings: Openings) -> APIRouter:
    """For keys of every role."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/key")
    async def own_key(request: Request) -> OwnKey:
        """What this key may do, what it has spent, and what is left of its budget."""
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
            limits={
                name: value
                for name, value in msgspec.to_builtins(limits).items()
                if value and not name.startswith("budget_")
            },
            window=window,
            window_ends=window_end(window, now_us),
            spent_usd=format_usd(spent),
            budget_usd=None if budget is None else format_usd(budget),
            left_usd=None if budget is None else format_usd(max(0, budget - spent)),
        )

    return router
