"""What is logged about a slow disk, and when."""

import pytest

from gateway.ledger.sync_pace import OF_LATE, SyncPace


def test_a_disk_that_becomes_slow_is_told_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    pace = SyncPace()
    for seconds in (0.001, 0.001, 5.0) * OF_LATE:  # occasional slow syncs are not a slow disk
        pace.took(seconds)
    assert not pace.is_slow
    assert not caplog.records
    for _ in range(2 * OF_LATE):
        pace.took(0.2)
    assert pace.is_slow
    assert pace.usual_seconds == pytest.approx(0.2)
    assert ["a sync takes 200 ms" in record.getMessage() for record in caplog.records] == [True]
    for _ in range(OF_LATE):
        pace.took(0.001)
    assert not pace.is_slow
    assert len(caplog.records) == 2


def test_a_few_syncs_after_a_start_say_nothing() -> None:
    pace = SyncPace()
    for _ in range(OF_LATE - 1):
        pace.took(3.0)
    assert not pace.is_slow
