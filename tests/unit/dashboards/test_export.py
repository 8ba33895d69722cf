"""What a downloaded file is called."""

from datetime import UTC, datetime

from dashboards.export import file_name
from dashboards.periods import Period


def test_a_months_file_ends_with_its_last_day() -> None:
    """November's file used to be named as if it included the first of December."""
    november = Period("", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert file_name("costs", november, "csv") == "breakeven-costs-2026-11-01-2026-11-30.csv"
