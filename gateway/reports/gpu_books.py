"""What our own GPUs cost in a period: rent = used + idle. Knows the report store's protocol only; reads no clock."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.economics.rent import RentHistory
from gateway.economics.traffic import Paid
from gateway.instants import HOUR_US, moment_of
from gateway.money import format_usd
from gateway.reports.focus import Capacity
from gateway.reports.tables import apportion
from gateway.reports.views import IdleCost, Utilisation, UtilisationPoint
from gateway.sums import ReportStore, SumsQuery

DAY_HOURS = 24


@dataclass(frozen=True, slots=True)
class Bounds:
    """A period, `until_us` exclusive."""

    since_us: int
    until_us: int

    @property
    def hours(self) -> tuple[int, int]:
        """The first whole hour and the one after the last, since the epoch."""
        return self.since_us // HOUR_US, self.until_us // HOUR_US

    def known(self, first_us: int, now_us: int) -> "Bounds":
        """The hours that begin in it, from the ledger's first until now; empty or reversed if there are none.
        Consecutive periods share no hour, even if they meet within one, as months in India do."""
        ends = (max(self.since_us, first_us), min(self.until_us, now_us))
        return Bounds(*(-(-end // HOUR_US) * HOUR_US for end in ends))


@dataclass(frozen=True, slots=True)
class Used:
    """What requests used of one backend's GPUs."""

    compute_pico_usd: int = 0
    gpu_us: int = 0


class GpuBooks:
    """GPUs count as paid for at each hour's price, from the ledger's first hour at the earliest until now."""

    def __init__(
        self, store: ReportStore, rented: Callable[[], Awaitable[Sequence[RentHistory]]], now_us: Callable[[], int]
    ) -> None:
        self._store = store
        self._rented = rented
        self._now_us = now_us

    async def paid(self, bounds: Bounds) -> Bounds | None:
        """The whole hours of the period in which GPUs can have been paid for; None if there are none."""
        seen = await self._store.first_and_last_us()
        if seen is None:
            return None
        known = bounds.known(seen[0], self._now_us())
        return known if known.since_us < known.until_us else None

    async def idle(self, bounds: Bounds) -> IdleCost | None:
        """None if no GPUs of our own were paid for, or before anything was booked."""
        paid = await self.paid(bounds)
        rented = await self._paid_for(paid)
        if not rented or paid is None:
            return None
        used = await self._used(paid)
        rents = {one.backend: one.pico_usd(*paid.hours) for one in rented}
        idle = sum(_idle(rents[one.backend], used.get(one.backend, Used())) for one in rented)
        seconds = sum(used.get(one.backend, Used()).gpu_us for one in rented) / 1e6
        return IdleCost(
            rent_usd=format_usd(sum(rents.values())),
            used_usd=format_usd(sum(rents.values()) - idle),
            idle_usd=format_usd(idle),
            utilisation=min(1.0, seconds / (3600.0 * sum(one.hours(*paid.hours) for one in rented))),
        )

    async def capacity(self, bounds: Bounds) -> list[Capacity]:
        """Rent and idle by UTC day and backend. The days' idle adds up to `idle`, although a request's seconds are all
        booked on the day it was accepted, which can exceed that day."""
        paid = await self.paid(bounds)
        rented = await self._paid_for(paid)
        if not rented or paid is None:
            return []
        rows = await self._store.sums(SumsQuery(paid.since_us, paid.until_us, ("day", "backend")))
        used = {(r.group["day"], r.group["backend"]): Used(r.compute_pico_usd, r.gpu_us) for r in rows}
        return [day for one in rented for day in _days(one, _hours_by_day(paid), used)]

    async def rented_in(self, bounds: Bounds) -> set[str]:
        """The backends whose rent covers the GPU time of the period, though it may be due in the period before."""
        hours = (bounds.since_us // HOUR_US, -(-bounds.until_us // HOUR_US))
        return {one.backend for one in await self._rented() if one.hours(*hours)}

    async def paid_for(self, backend: str, bounds: Bounds) -> Paid:
        """What the backend's GPUs cost in the whole hours of the period."""
        rented = [one for one in await self._rented() if one.backend == backend]
        rent = sum(one.pico_usd(*bounds.hours) for one in rented)
        used = (await self._used(bounds)).get(backend, Used()) if rent else Used()
        return Paid(sum(one.hours(*bounds.hours) for one in rented), rent, _idle(rent, used))

    async def utilisation(self, bounds: Bounds) -> Utilisation:
        paid = await self.paid(bounds)
        prices = [one.hour_pico_usd for one in await self._rented() if one.hour_pico_usd is not None]
        rented = await self._paid_for(paid)
        return Utilisation(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            is_configured=bool(prices or rented),
            gpu_hour_usd=format_usd(round(sum(prices) / len(prices)) if prices else 0, places=6),
            replicas=len(prices),
            backends=[one.backend for one in rented],
            idle=await self.idle(bounds),
            break_even_utilisation=None,
            break_even_busy_share=None,
            hours=await self._hours(paid, rented) if rented and paid is not None else [],
        )

    async def _hours(self, paid: Bounds, rented: Sequence[RentHistory]) -> list[UtilisationPoint]:
        used: dict[int, tuple[float, int]] = {}
        for row in await self._store.hourly_traffic(paid.since_us, paid.until_us, on_gpus=True):
            if row.gpu_seconds:
                seconds, requests = used.get(row.hour_start_us, (0.0, 0))
                used[row.hour_start_us] = (seconds + row.gpu_seconds, requests + row.requests)
        points: list[UtilisationPoint] = []
        for hour in range(*paid.hours):
            seconds, requests = used.get(hour * HOUR_US, (0.0, 0))
            points.append(
                UtilisationPoint(
                    start=moment_of(hour * HOUR_US),
                    used_gpu_seconds=seconds,
                    paid_gpu_seconds=3600.0 * sum(one.hours(hour, hour + 1) for one in rented),
                    requests=requests,
                )
            )
        return points

    async def _paid_for(self, paid: Bounds | None) -> list[RentHistory]:
        """Rents that were due in some hour of the period."""
        if paid is None:
            return []
        return [one for one in await self._rented() if one.hours(*paid.hours)]

    async def _used(self, paid: Bounds) -> dict[str | None, Used]:
        rows = await self._store.sums(SumsQuery(paid.since_us, paid.until_us, ("backend",)))
        return {row.group["backend"]: Used(row.compute_pico_usd, row.gpu_us) for row in rows}


def _idle(rent_pico_usd: int, used: Used) -> int:
    return max(0, rent_pico_usd - used.compute_pico_usd)


def _days(
    one: RentHistory, days: Mapping[str, tuple[int, int]], used: Mapping[tuple[str | None, str | None], Used]
) -> list[Capacity]:
    """The days' idle rent adds up to the total, to the pico-dollar."""
    spent = [used.get((day, one.backend), Used()) for day in days]
    rents = [one.pico_usd(*hours) for hours in days.values()]
    unused = [_idle(rent, day) for rent, day in zip(rents, spent, strict=True)]
    idle = apportion(_idle(sum(rents), Used(sum(day.compute_pico_usd for day in spent))), unused)
    return [
        Capacity(
            day=day,
            backend=one.backend,
            provider=one.provider,
            paid_us=one.hours(*hours) * HOUR_US,
            used_us=taken.gpu_us,
            hours=Decimal(one.hours(*hours)),
            rent_pico_usd=rent,
            used_pico_usd=taken.compute_pico_usd,
            idle_pico_usd=left,
        )
        for (day, hours), taken, rent, left in zip(days.items(), spent, rents, idle, strict=True)
        if one.hours(*hours) or taken.gpu_us
    ]


def _hours_by_day(paid: Bounds) -> dict[str, tuple[int, int]]:
    """The period's hours in each UTC day, the end exclusive."""
    first, end = paid.hours
    days = range(first // DAY_HOURS, -(-end // DAY_HOURS))
    return {
        moment_of(day * DAY_HOURS * HOUR_US).date().isoformat(): (
            max(first, day * DAY_HOURS),
            min(end, (day + 1) * DAY_HOURS),
        )
        for day in days
    }
