import pytest

from gateway.batches.pace import Pace

HOUR = 3600 * 10**6


@pytest.mark.parametrize(
    ("seconds", "lines_left", "hour"),
    [
        (None, 1, 21.6),  # the last tenth of the window always stays free
        (None, 50_000, 0.0),  # 35 hours at 10 seconds each, 8 at once
        (1.0, 50_000, 24 - 2 * 50_000 / 8 / 3600),
        (2.0, 10_000, 21.6),
        (8.0, 10_000, 24 - 2 * 10_000 / 3600),
    ],
)
def test_a_batch_waits_as_long_as_it_can_be_done_in_time(seconds: float | None, lines_left: int, hour: float) -> None:
    pace = Pace(8)
    if seconds is not None:
        pace.note(seconds / 2)
        pace.note(seconds * 1.5)

    def hurries(at: float) -> bool:
        return pace.must_hurry(round(at * HOUR), created_at_us=0, deadline_us=24 * HOUR, lines_left=lines_left)

    assert hurries(max(hour, 0.0) + 0.01)
    assert hour == 0.0 or not hurries(hour - 0.01)
