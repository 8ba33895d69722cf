"""What a reader of the break-even page is told first, for each way it can come out."""

from copy import deepcopy
from typing import Any

import pytest

from dashboards.break_even_answer import because, facts, heading

REPORT: dict[str, Any] = {
    "hosted": "mid-hosted",
    "plan": "small-local at $2.00 an hour",
    "hosted_quality": None,
    "plan_quality": 0.7,
    "observed": {"requests_per_day": 500.0},
    "owned": {"replicas": 1},
    "month": {"all_hosted_usd": "100", "plan_usd": "1450.5", "plan_saving_usd": "-1350.5"},
    "volume": {"hybrid": {"requests_per_day": 1250.0, "hosted_usd_per_month": "250"}, "hybrid_replicas": 1},
    "confidence": {
        "probability_owning_is_cheaper": 0.031,
        "saving_low_usd": "-1400",
        "saving_high_usd": "20",
        "days": 31,
    },
    "tornado": [
        {"input": "hosted price", "saving_at_minus_25_percent_usd": "9", "saving_at_plus_25_percent_usd": "11"},
        {"input": "GPU price", "saving_at_minus_25_percent_usd": "30", "saving_at_plus_25_percent_usd": "-10"},
    ],
}


def report(**changed: Any) -> dict[str, Any]:
    """The report with some parts, or fields of them, replaced."""
    made = deepcopy(REPORT)
    for name, value in changed.items():
        made[name] = made[name] | value if isinstance(made[name], dict) and value is not None else value
    return made


@pytest.mark.parametrize(
    ("saving", "replicas", "said"),
    [
        ("-1350.5", 1, "Everything hosted is cheaper, by $1,350.50 a month"),
        ("12", 1, "Your own GPU is cheaper, by $12.00 a month"),
        ("12", 3, "Your own GPUs are cheaper, by $12.00 a month"),
        ("0", 1, "Your own GPU and everything hosted cost the same"),
    ],
)
def test_the_heading_says_which_is_cheaper(saving: str, replicas: int, said: str) -> None:
    assert heading(report(month={"plan_saving_usd": saving}, owned={"replicas": replicas})) == said


def test_the_bills_compared_stand_below_it() -> None:
    said = because(REPORT)
    assert said.startswith("At 500 requests a day everything hosted at mid-hosted costs $100.00 a month; 1 GPU (small")
    assert said.endswith("the rest hosted cost $1,450.50.")


def test_what_one_asks_next() -> None:
    assert facts(REPORT) == [
        ("Owning pays from", "1,250 requests a day on, with 1 GPU: 2.5 times as many as here"),
        (
            "How sure",
            "3 % chance that owning is cheaper; nine times in ten it "
            "lies between $1,400.00 a month more and $20.00 less.",
        ),
        (
            "What matters most",
            "GPU price: a quarter lower, owning saves $30.00 a month; a quarter higher, it costs $10.00 a month more",
        ),
        ("Quality of answers", "not measured on both sides: prices are compared, not answers"),
    ]


@pytest.mark.parametrize(
    ("changed", "name", "said"),
    [
        ({"observed": {"requests_per_day": 2000.0}}, "Owning pays from", "fewer than the 2,000 here"),
        ({"volume": {"hybrid": None}}, "Owning pays from", "no volume, at this mix"),
        ({"confidence": None}, "How sure", "not known"),
        ({"confidence": {"days": 3}}, "How sure", "3 days are too few"),
        ({"confidence": {"saving_high_usd": "-20"}}, "How sure", "it costs $20.00 to $1,400.00 a month more."),
        ({"confidence": {"saving_low_usd": "5"}}, "How sure", "it saves $5.00 to $20.00 a month."),
        ({"hosted_quality": 0.91}, "Quality of answers", "0.70 owned, 0.91 hosted"),
    ],
)
def test_it_can_come_out_otherwise(changed: dict[str, Any], name: str, said: str) -> None:
    assert said in dict(facts(report(**changed)))[name]


def test_where_nothing_moves_the_saving_nothing_matters_most() -> None:
    flat = {"input": "hosted price", "saving_at_minus_25_percent_usd": "9", "saving_at_plus_25_percent_usd": "9"}
    for swings in ([], [flat]):
        assert "What matters most" not in dict(facts(report(tornado=swings)))
