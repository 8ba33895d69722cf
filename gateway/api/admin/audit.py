"""`/admin/v1/audit`: who changed what, as a hash chain that reveals any later edit."""
# pyright: reportUnusedFunction=false

from fastapi import APIRouter, Query
from pydantic import BaseModel

from gateway.api.admin.guard import needs
from gateway.stores import AuditLog, AuditRecord, Verified

MOST_RECORDS = 2**63 - 1
"""The largest integer that the databases store."""


class AuditPage(BaseModel):
    """Newest first. `next_before` is the `before` of the next page; null on the last page."""

    records: list[AuditRecord]
    next_before: int | None


def build_audit_router(audit: AuditLog) -> APIRouter:
    """The paths below `/audit`."""
    router = APIRouter(prefix="/audit", tags=["admin: audit"])

    @router.get("", openapi_extra=needs("audit.read"))
    async def page(
        before: int | None = Query(None, ge=0, le=MOST_RECORDS), limit: int = Query(50, ge=1, le=500)
    ) -> AuditPage:
        """Who changed what, newest first."""
        records = list(await audit.page(before=before, limit=limit))
        return AuditPage(records=records, next_before=records[-1].sequence if len(records) == limit else None)

    @router.get("/verify", openapi_extra=needs("audit.read"))
    async def verify() -> Verified:
        """Recompute the hash chain and report the first record that does not fit."""
        return await audit.verify()

    return router
