"""The dated hourly cost of GPUs: a new price, or a GPU given back, leaves earlier months unchanged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class GpuRent:
    """The hourly rent of all GPUs of a backend, from a UTC hour (since the epoch) until the backend's next GpuRent.

    `hour_pico_usd` None: they are not paid for, or not by the hour.
    """

    backend: str
    provider: str
    from_hour: int
    hour_pico_usd: int | None


@dataclass(frozen=True, slots=True)
class RentHistory:
    """One backend's rents, oldest first."""

    rents: tuple[GpuRent, ...]

    @property
    def backend(self) -> str:
        return self.rents[-1].backend

    @property
    def provider(self) -> str:
        return self.rents[-1].provider

    @property
    def hour_pico_usd(self) -> int | None:
        """The current price."""
        return self.rents[-1].hour_pico_usd

    def pico_usd(self, start_hour: int, end_hour: int) -> int:
        """The rent of these hours; the end is exclusive."""
        return sum(hours * price for hours, price in self._paid(start_hour, end_hour))

    def hours(self, start_hour: int, end_hour: int) -> int:
        """How many of these hours were paid for."""
        return sum(hours for hours, _ in self._paid(start_hour, end_hour))

    def _paid(self, start_hour: int, end_hour: int) -> Iterator[tuple[int, int]]:
        """Yields (hours, price) pairs."""
        ends = [*(rent.from_hour for rent in self.rents[1:]), end_hour]
        for rent, until in zip(self.rents, ends, strict=True):
            hours = min(end_hour, until) - max(start_hour, rent.from_hour)
            if hours > 0 and rent.hour_pico_usd is not None:
                yield hours, rent.hour_pico_usd


def histories(rents: Sequence[GpuRent]) -> list[RentHistory]:
    """One history per backend, ordered by name."""
    ordered = sorted(rents, key=lambda rent: (rent.backend, rent.from_hour))
    by_backend: dict[str, list[GpuRent]] = {}
    for rent in ordered:
        by_backend.setdefault(rent.backend, []).append(rent)
    return [RentHistory(tuple(found)) for found in by_backend.values()]


def rents_begun(known: Sequence[GpuRent], present: Sequence[GpuRent], hour: int) -> list[GpuRent]:
    """What to add to `known` so that it matches `present` from `hour` on.

    If nothing is known yet, the present rents also apply to all earlier hours.
    """
    last = {one.backend: one.rents[-1] for one in histories(known)}
    now = {rent.backend: rent for rent in present}
    gone = [replace(rent, hour_pico_usd=None) for rent in last.values() if rent.backend not in now]
    since = hour if known else 0
    return [
        replace(rent, from_hour=since)
        for rent in (*present, *gone)
        if (before := last.get(rent.backend)) is None or before != replace(rent, from_hour=before.from_hour)
    ]


def dated_ahead(known: Sequence[GpuRent], hour: int) -> list[GpuRent]:
    """Rents that begin after `hour`: the clock was ahead when they were dated, or is behind now."""
    return [rent for rent in known if rent.from_hour > hour]
