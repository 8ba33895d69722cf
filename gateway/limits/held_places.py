"""Concurrency places taken by this process' requests. Pure: nothing is shared here."""

from collections.abc import Callable, Sequence

from gateway.limits.counters import Places


class HeldPlaces:
    """`share` is the number of processes that divide each limit among themselves when they cannot coordinate."""

    def __init__(self, share: Callable[[], int]) -> None:
        self._share = share
        self._buckets: dict[str, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._buckets

    def try_take(self, name: str, places: Sequence[Places]) -> Places | None:
        """Take one place in each, within this process' share of each limit (at least one). Returns the full one, or
        None."""
        for one in places:
            if self._counts.get(one.bucket, 0) >= max(1, one.most // self._share()):
                return one
        self.take(name, places)
        return None

    def take(self, name: str, places: Sequence[Places]) -> None:
        """Record places that the shared store has granted."""
        self._buckets[name] = buckets = tuple(one.bucket for one in places)
        for bucket in buckets:
            self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def give_back(self, name: str) -> tuple[str, ...]:
        """The buckets in which places were returned; empty the second time."""
        buckets = self._buckets.pop(name, ())
        for bucket in buckets:
            if self._counts[bucket] == 1:
                del self._counts[bucket]
            else:
                self._counts[bucket] -= 1
        return buckets

    def all(self) -> dict[str, tuple[str, ...]]:
        """The buckets in which each holder has a place."""
        return dict(self._buckets)
