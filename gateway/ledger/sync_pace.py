"""How long a sync of the journal's disk has recently taken. Pure, except that it logs."""

import logging
from collections import deque
from statistics import median_high

log = logging.getLogger(__name__)
OF_LATE = 16
SLOW_SECONDS = 0.1
"""The end of every answer waits for a sync. A data-centre disk takes about a millisecond."""


class SyncPace:
    """`usual_seconds` is the median of the last OF_LATE syncs; `is_slow` needs that many."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=OF_LATE)
        self._is_told = False

    @property
    def usual_seconds(self) -> float:
        return median_high(self._took) if self._took else 0.0

    @property
    def is_slow(self) -> bool:
        return len(self._took) == OF_LATE and self.usual_seconds >= SLOW_SECONDS

    def took(self, seconds: float) -> None:
        """Record a sync; logs once when the disk becomes slow and once when it recovers."""
        self._took.append(seconds)
        if seconds >= SLOW_SECONDS or self._is_told:
            self._tell()

    def _tell(self) -> None:
        if self.is_slow and not self._is_told:
            self._is_told = True
            log.warning(
                "the journal's disk is slow: a sync takes %.0f ms, and the end of every answer waits for one; put "
                "BREAKEVEN_HOME on a faster local disk, or see what else keeps this one busy",
                self.usual_seconds * 1000,
            )
        elif self._is_told and not self.is_slow:
            self._is_told = False
            log.warning("the journal's disk is fast enough again")
