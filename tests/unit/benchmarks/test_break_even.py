"""The worked report matches what the code computes; after an intended change, write it again with the command."""

from pathlib import Path

import pytest

from benchmarks.break_even.__main__ import measure
from benchmarks.break_even.month import BATCH_HOURS, OUTAGE_HOURS, build_month
from benchmarks.break_even.plots import write_plots
from benchmarks.break_even.study import Study, study_month
from benchmarks.break_even.text import write_text

REPORT = Path(__file__).resolve().parents[3] / "docs" / "break-even.md"


@pytest.fixture(scope="module")
def study() -> Study:
    return study_month()


def test_the_committed_report_is_what_the_command_writes(study: Study) -> None:
    assert write_text(study) == REPORT.read_text(encoding="utf-8"), "python -m benchmarks.break_even --report docs"


def test_every_picture_of_the_report_exists_and_is_small(study: Study, tmp_path: Path) -> None:
    write_plots(study, tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(path.name for path in (REPORT.parent / "images").glob("break-even-*.png"))
    text = REPORT.read_text(encoding="utf-8")
    for name in written:
        assert f"(images/{name})" in text
        assert (REPORT.parent / "images" / name).stat().st_size < 80_000


def test_every_bar_holds(study: Study) -> None:
    measured = measure(study, 1.0)
    bars = measured["bars"]
    assert isinstance(bars, list)
    assert all(bar["holds"] for bar in bars)


def test_the_synthetic_month_has_its_outage_and_its_batch() -> None:
    rows = build_month()
    assert len(rows) == 720 - len(OUTAGE_HOURS)
    start = rows[0].hour_start_us
    batch = [row for row in rows if (row.hour_start_us - start) // 3_600_000_000 in BATCH_HOURS]
    assert min(row.requests for row in batch) > 40_000
