import pytest

from gateway.economics.errors import EconomicsError
from gateway.economics.throughput_curve import SweepPoint, best_concurrency, fit_throughput_curve
from tests.unit.gateway.economics.worked_example import CURVE, measure

SATURATING = [SweepPoint(1, 50.0), SweepPoint(8, 320.0), SweepPoint(16, 400.0), SweepPoint(64, 420.0)]


def test_a_noisy_line_is_still_fitted() -> None:
    noisy = [
        SweepPoint(point.concurrency, point.decode_tokens_per_second * factor)
        for point, factor in zip([measure(n) for n in (1, 8, 32, 64)], (1.02, 0.97, 1.01, 0.99), strict=True)
    ]
    curve = fit_throughput_curve(noisy)
    assert not curve.is_interpolated
    assert curve.step_base_seconds == pytest.approx(0.020, rel=0.1)
    assert curve.step_seconds_per_sequence == pytest.approx(0.0005, rel=0.1)


@pytest.mark.parametrize("points", [[], [measure(1)], [measure(1), measure(8)], [measure(8), measure(8), measure(1)]])
def test_fewer_than_three_concurrencies_are_refused(points: list[SweepPoint]) -> None:
    with pytest.raises(EconomicsError, match="needs 3 different concurrencies"):
        fit_throughput_curve(points)


def test_a_throughput_of_zero_is_refused() -> None:
    with pytest.raises(EconomicsError, match="positive throughput"):
        fit_throughput_curve([measure(1), measure(2), SweepPoint(4, 0.0)])


@pytest.mark.parametrize("concurrency", [0, 64.5, 65, 1000])
def test_nothing_is_extrapolated(concurrency: float) -> None:
    with pytest.raises(EconomicsError, match="which is what was measured"):
        CURVE.tokens_per_second(concurrency)


def test_a_curve_that_is_no_line_is_interpolated() -> None:
    curve = fit_throughput_curve(SATURATING)
    assert curve.is_interpolated
    assert curve.largest_relative_residual > 0.10
    assert curve.ceiling_tokens_per_second is None
    for point in SATURATING:
        assert curve.tokens_per_second(point.concurrency) == pytest.approx(point.decode_tokens_per_second)
    steps = [curve.step_seconds(concurrency) for concurrency in range(1, 65)]
    assert steps == sorted(steps)


def test_a_dip_in_the_sweep_never_makes_a_step_faster() -> None:
    curve = fit_throughput_curve([SweepPoint(1, 10.0), SweepPoint(2, 5.0), SweepPoint(4, 40.0), SweepPoint(8, 50.0)])
    steps = [curve.step_seconds(concurrency) for concurrency in (1, 2, 3, 4, 8)]
    assert steps == sorted(steps)


@pytest.mark.parametrize(("per_token", "expected"), [(0.052, 64), (0.036, 32), (0.0205, 1), (0.020, None), (10.0, 64)])
def test_best_concurrency_by_time_per_output_token(per_token: float, expected: int | None) -> None:
    assert best_concurrency(CURVE, time_per_output_token_seconds=per_token) == expected
