"""The rent is stated as the period paid it, not at today's price of an hour."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.display import share
from dashboards.pages.utilisation import build_tiles, hours_table, rent_note
from dashboards.periods import parse_period
from tests.unit.dashboards.views import make_view


@pytest.mark.parametrize(
    ("rent", "paid_hours", "said"),
    [
        ("117.6", [24 * 31], "744 GPU hours at $0.158 on average, $0.10 now"),
        ("0.1", [1], "1 GPU hour at $0.10"),
        ("0.2", [1, 1], "2 GPU hours at $0.10"),
        ("5000", [2] * 500, "1,000 GPU hours at $5.00 on average, $0.10 now"),
        ("0", [0], "no hour was paid for"),
    ],
)
def test_hours_at_the_mean_of_their_own_prices(rent: str, paid_hours: list[int], said: str) -> None:
    hours = [{"paid_gpu_seconds": 3600.0 * hours} for hours in paid_hours]
    found: dict[str, Any] = {"gpu_hour_usd": "0.100000", "idle": {"rent_usd": rent}, "hours": hours}
    assert rent_note(found) == said


@pytest.mark.parametrize(
    ("time_used", "pays", "busy", "tone", "said"),
    [
        (0.5, 0.3, 0.6, "warn", "in batches like these, 60.0\xa0% of the time"),
        (0.61, 0.3, 0.6, "good", "in batches like these, 60.0\xa0% of the time"),
        (1.0, 0.3, 1.8, "warn", "batches as small as these never get there"),
        (1.0, 1.5, 1.8, "warn", "of its capacity; see Break-even"),
        (0.5, None, None, "", "of its capacity; see Break-even"),
    ],
)
def test_time_used_is_held_against_time_and_not_against_capacity(
    time_used: float, pays: float | None, busy: float | None, tone: str, said: str
) -> None:
    """In small batches, half of the time is less than the 30 % of capacity that pay."""
    idle = {"rent_usd": "0.1", "used_usd": "0.05", "idle_usd": "0.05", "utilisation": time_used}
    found: dict[str, Any] = {"gpu_hour_usd": "0.1", "idle": idle, "hours": [], "backends": ["local"]}
    found |= {"break_even_utilisation": pays, "break_even_busy_share": busy}
    shown = build_tiles(found, "7 days")
    assert f'<div class="be-tile {tone}"><div class="be-tile-label">Pays above</div>' in shown
    assert (f">{share(pays)}<" if pays else ">unknown<") in shown
    assert said in shown


@pytest.mark.parametrize(("last", "shown"), [("2026-12-31", "9 Dec 14:00"), ("2027-01-01", "9 Dec 2026 14:00")])
def test_an_hour_has_its_year_where_the_time_is_of_two(last: str, shown: str) -> None:
    period = parse_period({"since": "2026-01-01", "last": last}, datetime(2027, 3, 1, tzinfo=UTC))
    hour = {"start": "2026-12-09T14:00:00Z", "requests": 1, "used_gpu_seconds": 1.0, "paid_gpu_seconds": 3600.0}
    view = replace(make_view(), period=period)
    assert f">{shown}<" in hours_table({"backends": ["local"]}, [hour], view, "Hours")


@pytest.mark.parametrize(("backends", "query"), [(["vllm"], "backend=vllm"), (["a", "b"], None)])
def test_an_hour_leads_to_the_requests_of_the_gpu_that_was_paid_for(backends: list[str], query: str | None) -> None:
    """It led to the bundled engine's, of which there are none where a vLLM serves."""
    hour = {"start": "2026-12-09T14:00:00Z", "requests": 1, "used_gpu_seconds": 1.0, "paid_gpu_seconds": 3600.0}
    shown = hours_table({"backends": backends}, [hour], make_view("entries.read"), "Hours")
    assert query in shown if query else "backend=" not in shown
