import numpy as np
import pytest

from gateway.economics.errors import NotMeasured
from gateway.economics.off_policy import OffPolicyEstimate, Rated, estimate_outcome


def explore(seed: int, *, requests: int = 2000, share: float = 0.2) -> tuple[OffPolicyEstimate, float]:
    """Easy requests go to the small model and hard ones to the big one, but a share of each goes the other way.

    The big model pleases nine in ten, the small one nine in ten of the easy and four in ten of the hard. Asked is what
    the small model would have scored on everything; the naive mean of its answers is far above.
    """
    generator = np.random.default_rng(seed)
    rated: list[Rated] = []
    naive: list[float] = []
    for is_hard, flips, luck in zip(
        (generator.random(requests) < 0.5).tolist(),
        (generator.random(requests) < share).tolist(),
        generator.random(requests).tolist(),
        strict=True,
    ):
        is_small = is_hard == flips
        outcome = float(luck < (0.4 if is_hard and is_small else 0.9))
        rated.append(Rated(is_small, share if flips else 1 - share, outcome))
        if is_small:
            naive.append(outcome)
    return estimate_outcome(rated), float(np.mean(naive))


def test_it_finds_the_truth_that_the_plain_mean_misses() -> None:
    estimates = [explore(seed) for seed in range(40)]
    assert float(np.mean([estimate.mean for estimate, _ in estimates])) == pytest.approx(0.65, abs=0.01)
    assert float(np.mean([naive for _, naive in estimates])) == pytest.approx(0.8, abs=0.01)
    covered = sum(estimate.low <= 0.65 <= estimate.high for estimate, _ in estimates)
    assert covered >= 32


def test_effective_observations_are_fewer_than_those_seen() -> None:
    estimate, _ = explore(1)
    assert 30 < estimate.effective < 1100 < estimate.observations
    assert estimate.is_enough
    assert not explore(1, requests=40)[0].is_enough


def test_a_rare_choice_does_not_decide_alone() -> None:
    rated = [Rated(True, 1.0, 0.0)] * 100 + [Rated(True, 0.0001, 1.0)]
    assert estimate_outcome(rated).mean == pytest.approx(50 / 150)


def test_without_agreement_or_propensity_nothing_is_said() -> None:
    with pytest.raises(NotMeasured, match="explore first"):
        estimate_outcome([Rated(False, 1.0, 1.0)])
    with pytest.raises(NotMeasured, match="none of 0"):
        estimate_outcome([])
    with pytest.raises(NotMeasured, match="propensity"):
        estimate_outcome([Rated(True, 0.0, 1.0)])
