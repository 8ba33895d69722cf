"""What GPUs of our own cost in a period: rent = used + idle. Knows the report store's protocol only; reads no clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.economics.traffic import HOUR_US
from gateway.moments import moment_of
from gateway.money import format_usd
from gateway.reports.focus import Capacity
from gateway.reports.plans import Rented
from gateway.reports.tables import apportion
from gateway.reports.views import IdleCost, Utilisation, UtilisationPoint
from gateway.sums import ReportStore, SumsQuery

DAY_US = 24 * HOUR_US


@dataclass(frozen=True, slots=True)
class Bounds:
    """A period, `until_us` exclusive."""

    since_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Used:
    """What requests took of one backend's GPUs."""

    compute_pico_usd: int = 0
    gpu_us: int = 0


class GpuBooks:
    """GPUs are taken to be paid for from the ledger's first hour until now."""

    def __init__(self, store: ReportStore, rented: Callable[[], Sequence[Rented]], now_us: Callable[[], int]) -> None:
        self._store = store
        self._rented = rented
        self._now_us = now_us

    async def paid(self, bounds: Bounds) -> Bounds | None:
        """The whole hours of the period in which the GPUs were paid for; None where there is none."""
        seen = await self._store.first_and_last_us()
        if seen is None:
            return None
        since = max(bounds.since_us, seen[0]) // HOUR_US * HOUR_US
        until = -(-min(bounds.until_us, self._now_us()) // HOUR_US) * HOUR_US
        return Bounds(since, until) if since < until else None

    async def idle(self, bounds: Bounds) -> IdleCost | None:
        """None without GPUs of our own, or before anything was booked."""
        rented, paid = self._rented(), await self.paid(bounds)
        if not rented or paid is None:
            return None
        used = await self._used(paid)
        hours = (paid.until_us - paid.since_us) // HOUR_US
        rents = {one.backend: one.plan.rent_pico_usd(hours) for one in rented}
        idle = sum(_idle(rents[one.backend], used.get(one.backend, Used())) for one in rented)
        seconds = sum(used.get(one.backend, Used()).gpu_us for one in rented) / 1e6
        return IdleCost(
            rent_usd=format_usd(sum(rents.values())),
            used_usd=format_usd(sum(rents.values()) - idle),
            idle_usd=format_usd(idle),
            utilisation=min(1.0, seconds / (3600.0 * hours * sum(one.plan.replicas for one in rented))),
        )

    async def capacity(self, bounds: Bounds) -> list[Capacity]:
        """Rent and idle by UTC day and backend. Idle days add up to `idle`, though a request's seconds are booked on
        the day it was accepted and a day can so hold more than its own."""
        rented, paid = self._rented(), await self.paid(bounds)
        if not rented or paid is None:
            return []
        rows = await self._store.sums(SumsQuery(paid.since_us, paid.until_us, ("day", "backend")))
        used = {(r.group["day"], r.group["backend"]): Used(r.compute_pico_usd, r.gpu_us) for r in rows}
        hours = _hours_by_day(paid)
        found: list[Capacity] = []
        for one in rented:
            days = [used.get((day, one.backend), Used()) for day in hours]
            rents = [one.plan.rent_pico_usd(count) for count in hours.values()]
            total = Used(sum(day.compute_pico_usd for day in days), sum(day.gpu_us for day in days))
            unused = [_idle(rent, day) for rent, day in zip(rents, days, strict=True)]
            idle = apportion(_idle(sum(rents), total), unused)
            found += [
                Capacity(
                    day=day,
                    backend=one.backend,
                    provider=one.provider,
                    paid_us=count * HOUR_US * one.plan.replicas,
                    used_us=spent.gpu_us,
                    hours=Decimal(count * one.plan.replicas * one.plan.gpus_per_replica),
                    rent_pico_usd=rent,
                    idle_pico_usd=left,
                )
                for (day, count), spent, rent, left in zip(hours.items(), days, rents, idle, strict=True)
            ]
        return found

    async def utilisation(self, bounds: Bounds) -> Utilisation:
        rented, paid = self._rented(), await self.paid(bounds)
        replicas = sum(one.plan.replicas for one in rented)
        hour_pico = sum(one.plan.rent_pico_usd(1) for one in rented)
        return Utilisation(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            is_configured=bool(rented),
            gpu_hour_usd=format_usd(round(hour_pico / replicas) if replicas else 0, places=6),
            replicas=replicas,
            idle=await self.idle(bounds),
            break_even_utilisation=None,
            hours=await self._hours(paid, replicas) if rented and paid is not None else [],
        )

    async def _hours(self, paid: Bounds, replicas: int) -> list[UtilisationPoint]:
        used: dict[int, tuple[float, int]] = {}
        for row in await self._store.hourly_traffic(paid.since_us, paid.until_us, with_shadow=True):
            if row.gpu_seconds:
                seconds, requests = used.get(row.hour_start_us, (0.0, 0))
                used[row.hour_start_us] = (seconds + row.gpu_seconds, requests + row.requests)
        points: list[UtilisationPoint] = []
        for start_us in range(paid.since_us, paid.until_us, HOUR_US):
            seconds, requests = used.get(start_us, (0.0, 0))
            points.append(
                UtilisationPoint(
                    start=moment_of(start_us),
                    used_gpu_seconds=seconds,
                    paid_gpu_seconds=3600.0 * replicas,
                    requests=requests,
                )
            )
        return points

    async def _used(self, paid: Bounds) -> dict[str | None, Used]:
        rows = await self._store.sums(SumsQuery(paid.since_us, paid.until_us, ("backend",)))
        return {row.group["backend"]: Used(row.compute_pico_usd, row.gpu_us) for row in rows}


def _idle(rent_pico_usd: int, used: Used) -> int:
    return max(0, rent_pico_usd - used.compute_pico_usd)


def _hours_by_day(paid: Bounds) -> dict[str, int]:
    """How many of each UTC day's hours are in the period."""
    days: dict[str, int] = {}
    for start_us in range(paid.since_us, paid.until_us, HOUR_US):
        day = moment_of(start_us).date().isoformat()
        days[day] = days.get(day, 0) + 1
    return days
