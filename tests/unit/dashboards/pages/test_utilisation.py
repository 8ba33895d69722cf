"""The rent is stated as the period paid it, not at today's price of an hour."""

from typing import Any

import pytest

from dashboards.pages.utilisation import rent_note


@pytest.mark.parametrize(
    ("rent", "paid_hours", "said"),
    [
        ("117.6", [24 * 31], "744 GPU hours at $0.158"),
        ("0.1", [1], "1 GPU hour at $0.10"),
        ("0.2", [1, 1], "2 GPU hours at $0.10"),
        ("5000", [2] * 500, "1,000 GPU hours at $5.00"),
        ("0", [0], "no hour was paid for"),
    ],
)
def test_hours_at_the_mean_of_their_own_prices(rent: str, paid_hours: list[int], said: str) -> None:
    hours = [{"paid_gpu_seconds": 3600.0 * hours} for hours in paid_hours]
    found: dict[str, Any] = {"gpu_hour_usd": "0.100000", "idle": {"rent_usd": rent}, "hours": hours}
    assert rent_note(found) == said
