"""Feedback and shadow calls without a database, and the moment and the money of their tests."""

from collections.abc import Sequence

from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account
from gateway.limits.values import window_id
from gateway.stores import Feedback, ShadowCall

NOW_US = 1_790_000_000_000_000
PLENTY = 10**12


def shadow_money(admission: Admission, at_us: int = NOW_US) -> int:
    """Pico-USD of the day that shadow calls and their judge have spent, or hold while under way."""
    account = budget_account("", window_id("day", at_us), scope="shadow")
    purse = admission.treasury.purse(account, admission.shadow_pico_usd or 0)
    return purse.holding.spent + purse.reserved


class MemoryFeedback:
    """FeedbackStore without a database."""

    def __init__(self, *, fails: bool = False) -> None:
        self.given: list[Feedback] = []
        self.calls: list[ShadowCall] = []
        self._fails = fails

    async def add(self, batch: Sequence[Feedback]) -> None:
        self.given.extend(batch)

    async def newest(self) -> int:
        return len(self.given)

    async def after(self, number: int, *, limit: int = 1000) -> Sequence[Feedback]:
        return self.given[number : number + limit]

    async def add_shadow(self, call: ShadowCall) -> None:
        if self._fails:
            raise ConnectionError("the database is down")
        self.calls.append(call)

    async def shadows(self, since_us: int, until_us: int) -> Sequence[ShadowCall]:
        return self.calls
