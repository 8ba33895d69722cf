from gateway.clock import BELIEVED_AFTER_SECONDS, PatientClock

BEGAN_US = 1_795_000_000_000_000
HOUR, MONTH = 3600.0, 30 * 86_400.0


class Clock:
    """A settable time of day, and a monotonic clock."""

    def __init__(self) -> None:
        self.seconds, self.ahead = 1000.0, 0.0
        self.patient = PatientClock(lambda: round((self.seconds + self.ahead) * 1e6) + BEGAN_US, lambda: self.seconds)

    def later(self, seconds: float, *, ahead: float) -> float:
        """How far the patient clock is ahead of the elapsed time after these seconds."""
        self.seconds, self.ahead = self.seconds + seconds, ahead
        return (self.patient() - BEGAN_US) / 1e6 - self.seconds


def test_a_step_forward_that_is_taken_back_was_never_believed() -> None:
    clock = Clock()
    assert clock.later(HOUR, ahead=0) == 0
    assert [clock.later(HOUR, ahead=MONTH) for _ in range(20)] == [0] * 20
    assert clock.later(HOUR, ahead=0) == 0
    assert clock.later(BELIEVED_AFTER_SECONDS, ahead=MONTH) == 0, "another one, heard of just now"


def test_a_step_forward_that_lasts_a_day_was_to_the_right_time() -> None:
    """A machine that booted in 1970 and then learned the time."""
    clock = Clock()
    assert clock.later(HOUR, ahead=MONTH) == 0
    assert clock.later(BELIEVED_AFTER_SECONDS - 1, ahead=MONTH) == 0
    assert clock.later(1, ahead=MONTH) == MONTH


def test_a_step_back_counts_at_once_and_drift_is_no_step() -> None:
    clock = Clock()
    assert clock.later(HOUR, ahead=-MONTH) == -MONTH
    assert clock.later(HOUR, ahead=2 - MONTH) == 2 - MONTH
