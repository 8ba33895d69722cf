"""Sliders show values as people write them; utilisation is another way to state the volume."""

import pytest

from dashboards.levers import LEVERS, UTILISATION, utilisation_at, volume_at
from gateway.reports.views import BreakEvenQuery

OBSERVED = {"requests_per_day": 43_200.0, "gpu_seconds_per_request": 0.5}


@pytest.mark.parametrize("lever", [*LEVERS, UTILISATION], ids=lambda lever: lever.name)
def test_a_position_and_its_value_belong_together(lever: object) -> None:
    assert isinstance(lever, type(UTILISATION))
    low, high = lever.bounds()
    for value in (lever.low, (lever.low * lever.high) ** 0.5, lever.high):
        assert lever.value(lever.position(value)) == pytest.approx(value, rel=0.01, abs=1e-9)
        assert low <= lever.position(value) <= high
        assert lever.says(value)
    assert lever.position(lever.high * 10) == pytest.approx(high)


def test_the_gateway_takes_every_lever_over_its_whole_range() -> None:
    for end in ("low", "high"):
        BreakEvenQuery.model_validate({lever.name: getattr(lever, end) for lever in LEVERS})


def test_utilisation_and_volume() -> None:
    assert utilisation_at(1.0, 1, OBSERVED) == pytest.approx(0.25)
    assert utilisation_at(8.0, 2, OBSERVED) == pytest.approx(1.0)
    assert volume_at(0.5, 1, OBSERVED) == pytest.approx(2.0)


def test_settings_in_words() -> None:
    says = {lever.name: lever.says for lever in LEVERS}
    assert says["gpu_hour_usd"](2.5) == "$2.50 / hour"
    assert says["hosted_price_factor"](0.5) == "50 % less"
    assert says["yearly_price_factor"](1) == "as today"
    assert says["volume_factor"](30.0) == "30 ×"
