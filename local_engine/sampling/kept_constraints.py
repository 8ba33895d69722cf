"""A bounded cache of compiled constraints. Knows no grammar; thread-safe."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from local_engine.sampling.sampling_params import Constraint

T = TypeVar("T")


class KeptConstraints(Generic[T]):
    """At most `count` entries with a total weight, by `weigh`, of at most `weight`; always keeps the latest.

    `weigh` is given a constraint, and the seconds of CPU that it took to compile.
    """

    def __init__(
        self, build: Callable[[Constraint], T], weigh: Callable[[Constraint, float], int], *, count: int, weight: int
    ) -> None:
        self._build, self._weigh = build, weigh
        self._count, self._weight = count, weight
        self._kept: OrderedDict[Constraint, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, constraint: Constraint) -> T:
        """The compiled constraint; compiled if not cached, without blocking other callers."""
        with self._lock:
            if constraint in self._kept:
                self._kept.move_to_end(constraint)
                return self._kept[constraint][0]
        began = time.thread_time()
        built = self._build(constraint)
        seconds = time.thread_time() - began
        with self._lock:
            self._kept[constraint] = (built, self._weigh(constraint, seconds))
            self._kept.move_to_end(constraint)
            self._drop()
        return built

    def _drop(self) -> None:
        total = sum(weight for _, weight in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > self._count or total > self._weight):
            _, (_, weight) = self._kept.popitem(last=False)
            total -= weight
