"""The replay benchmark's own month: optimisations must not change decisions or costs."""

from benchmarks.replay import SyntheticLog, build_snapshot
from gateway.economics.replay.replay import replay
from gateway.reports.replay_service import scenario_of


def test_the_recorded_month_is_decided_and_priced_as_recorded() -> None:
    diff = replay(SyntheticLog(3000), scenario_of(build_snapshot()))
    assert (diff.moved, diff.refused) == (1001, 0)
    assert diff.cost_change_pico_usd == 3_585_970_430_545
    assert diff.replayed.requests_by_model == {"small": 391, "mid": 1999, "large": 610}
