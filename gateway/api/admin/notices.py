"""`/admin/v1/notices`: whether budget notices are configured, and whether they are delivered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fastapi import APIRouter
from pydantic import BaseModel

from gateway.api.admin.guard import needs
from gateway.notices.watch import NoticeState


class Notices(BaseModel):
    """Times are null for what has never happened. While `failing_since_us` is set, a notice is waiting, and is sent
    again at about `next_try_at_us`; `problem` describes the last failure, without the webhook's address."""

    has_webhook: bool
    at: list[float]
    forecast: bool
    looked_at_us: int | None
    sent_at_us: int | None
    failing_since_us: int | None
    failed_at_us: int | None
    next_try_at_us: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class NoticeService:
    """The state of delivery, and the configuration."""

    state: Callable[[], Awaitable[NoticeState]]
    has_webhook: bool
    shares_per_mille: tuple[int, ...]
    forecast: bool


def build_notices_router(notices: NoticeService) -> APIRouter:
    """The path `/notices`."""
    router = APIRouter(tags=["admin: budgets"])

    @router.get("/notices", openapi_extra=needs("reports.read"))
    async def notices_state() -> Notices:
        """Whether budget notices are sent to a webhook, and how the last ones went."""
        state = await notices.state()
        if not notices.has_webhook:  # notices still queued are no longer sent
            state = replace(state, failing_since_us=None)
        return Notices(
            has_webhook=notices.has_webhook,
            at=[share / 1000 for share in notices.shares_per_mille],
            forecast=notices.forecast,
            looked_at_us=state.looked_at_us,
            sent_at_us=state.sent_at_us,
            failing_since_us=state.failing_since_us,
            failed_at_us=state.failed_at_us,
            next_try_at_us=state.next_try_at_us,
            problem=state.problem or None,
        )

    return router
