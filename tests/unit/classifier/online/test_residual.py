"""The residual learns what the prior misses, says how sure it is, and refuses what is no feature vector."""

import numpy as np
import pytest

from classifier.online.residual import start_residual


def test_no_data_no_correction() -> None:
    assert start_residual(3).predict(np.ones(3), 0.4)[0] == pytest.approx(0.4)


def test_one_weight_by_hand() -> None:
    # prior precision 100, one outcome 1.0 against 0.5 with noise 0.2: mean = (1/0.2 * 0.5) / (100 + 5)
    residual = start_residual(1, prior_deviation=0.1, noise_variance=0.2).update(np.array([1.0]), 0.5, 1.0)
    mean, deviation = residual.predict(np.array([1.0]), 0.5)
    assert mean == pytest.approx(0.5 + 2.5 / 105.0)
    assert deviation == pytest.approx(105.0**-0.5)


def test_it_learns_a_planted_bias_and_gets_surer() -> None:
    draw = np.random.default_rng(0)
    weights = np.array([0.2, -0.15, 0.0])
    residual = start_residual(3)
    for _ in range(3000):
        features = draw.normal(size=3)
        quality = float(np.clip(0.5 + features @ weights, 0, 1))
        residual = residual.update(features, 0.5, float(draw.random() < quality))
    probe = np.array([1.0, -1.0, 0.5])
    mean, deviation = residual.predict(probe, 0.5)
    assert mean == pytest.approx(0.85, abs=0.06)
    assert deviation < start_residual(3).predict(probe, 0.5)[1] / 3


def test_weight_discounts_and_forgetting_returns_to_the_prior() -> None:
    one = np.array([1.0])
    strong = start_residual(1).update(one, 0.5, 1.0)
    weak = start_residual(1).update(one, 0.5, 1.0, weight=0.2)
    assert 0.5 < weak.predict(one, 0.5)[0] < strong.predict(one, 0.5)[0]
    assert strong.forget(1.0).predict(one, 0.5)[0] == pytest.approx(0.5)


@pytest.mark.parametrize("features", [np.ones(2), np.array([1.0, np.nan, 0.0])])
def test_wrong_features_are_refused(features: np.ndarray) -> None:
    with pytest.raises(ValueError, match="needs 3 finite features"):
        start_residual(3).update(features, 0.5, 1.0)
