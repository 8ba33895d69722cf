"""A clock that a test sets."""


class HandClock:
    """Seconds that pass only when `now` is changed."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
