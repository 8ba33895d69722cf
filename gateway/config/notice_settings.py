"""The `notices` block of breakeven.yaml: who is told that a budget is nearly spent."""

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config.addresses import parse_http_url
from gateway.strict import Strict

Share = Annotated[Decimal, Field(gt=0, lt=10, decimal_places=3)]
DEFAULT_SHARES = (Decimal("0.8"), Decimal("0.95"), Decimal(1))


class NoticeSettings(Strict):
    """A JSON document is posted to `webhook` when a budget's spending first reaches one of the shares `at`, and with
    `forecast` when a month is first likely to exceed its budget.

    The address is a secret: BREAKEVEN_NOTICES_WEBHOOK takes precedence over it. Without an address nothing is sent.
    """

    webhook: Annotated[str, AfterValidator(parse_http_url)] | None = Field(default=None, repr=False)
    at: tuple[Share, ...] = Field(default=DEFAULT_SHARES, min_length=1)
    forecast: bool = True

    @property
    def shares_per_mille(self) -> tuple[int, ...]:
        return tuple(sorted({int(share * 1000) for share in self.at}))
