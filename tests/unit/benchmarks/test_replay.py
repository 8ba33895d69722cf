"""The replay benchmark's own month: what is made faster must decide and cost exactly what it did before."""

from benchmarks.replay import SyntheticLog, build_snapshot, make_scenario
from gateway.economics.replay import replay


def test_the_recorded_month_is_decided_and_priced_as_recorded() -> None:
    diff = replay(SyntheticLog(3000), make_scenario(build_snapshot()))
    assert (diff.moved, diff.refused) == (968, 0)
    assert diff.cost_change_pico_usd == 2_804_719_519_442
    assert diff.replayed.requests_by_model == {"small": 390, "mid": 2032, "large": 578}
