"""Composition root: budget notices."""

from collections.abc import Callable, Mapping

from gateway.clock import now_us
from gateway.config.settings import Settings
from gateway.limits.values import Limits
from gateway.notices.watch import BudgetNotices
from gateway.notices.webhook import Webhook
from gateway.storage.sql.stores import SqlStores
from gateway.telemetry.metrics import Metrics


def open_notices(
    settings: Settings,
    stores: SqlStores,
    limits: Callable[[], Mapping[str, Limits]],
    metrics: Metrics,
) -> BudgetNotices | None:
    """None if no webhook is configured."""
    if not settings.notices.webhook:
        return None
    return BudgetNotices(
        budgets=stores.budgets,
        keys=stores.keys,
        limits=limits,
        reports=stores.reports,
        store=stores.notices,
        post=Webhook(settings.notices.webhook).post,
        count=metrics.notice_told,
        shares_per_mille=settings.notices.shares_per_mille,
        page=budgets_page(settings),
        now_us=now_us,
        show_failing=metrics.notices_fail,
        openings=stores.openings.of,
    )


def budgets_page(settings: Settings) -> str | None:
    """Address of the budgets page, if the web UI's public address is known."""
    oidc = settings.sign_in.oidc
    return None if oidc is None else f"{oidc.public_url.rstrip('/')}/ui/budgets"
