import pytest

from benchmarks.cascade import Pair, cascade, choose_pair, measure

PAIR = Pair([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("wrong", "right", "score", "strong_share"),
    [(0.0, 0.0, 0.5, 0.0), (1.0, 1.0, 0.75, 1.0), (1.0, 0.0, 1.0, 0.5), (0.5, 0.5, 0.625, 0.5)],
)
def test_what_a_verifier_makes_of_two_models(wrong: float, right: float, score: float, strong_share: float) -> None:
    found = cascade(PAIR, wrong, right)
    assert (found.score, found.strong_share) == (pytest.approx(score), pytest.approx(strong_share))
    assert found.recovered == pytest.approx((score - 0.5) / 0.25)


def test_a_file_is_judged_by_its_middle_and_its_best_model() -> None:
    rows = [{"scores": {"a": 0.0, "b": 0.5, "c": 1.0, "rare": 1.0 if number == 0 else None}} for number in range(4)]
    assert choose_pair(rows) == ("b", "c", Pair([0.5] * 4, [1.0] * 4))
    assert measure(rows)["a coin"]["recovered"] == pytest.approx(0.5)
