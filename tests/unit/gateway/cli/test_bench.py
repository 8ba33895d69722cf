"""What `breakeven bench engine` shows of a measured curve."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.bench import curve_table, describe, draw, parse_steps
from gateway.config.engine_curve import CurveFile, MeasuredEngine, fit_engine
from gateway.errors import StateError


def measured() -> MeasuredEngine:
    return fit_engine(CurveFile("tiny", 300.0, [(1, 20.0), (2, 30.0), (4, 40.0)]))


def test_the_curve_is_drawn_in_the_terminal() -> None:
    console = Console(width=100, file=StringIO())
    with console.capture() as captured:
        console.print(curve_table(measured(), "tiny"))
    bars = [line.count("█") for line in captured.get().splitlines() if "█" in line]
    assert bars == [10, 15, 20]


def test_the_curve_is_drawn_as_a_png(tmp_path: Path) -> None:
    draw(measured(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    for wrong in ("missing/curve.png", "curve.what"):
        with pytest.raises(StateError, match="cannot draw into"):
            draw(measured(), tmp_path / wrong)


def test_the_curve_as_json_has_the_fit() -> None:
    described = describe(measured())
    assert described["step_base_seconds"] == pytest.approx(1 / 30, rel=0.2)
    assert described["working_concurrency"] == 4


@pytest.mark.parametrize("text", ["", "1,,2", "0,1,2", "one", "1,-2", "1,1,2", "1,2,65537", "1,2," + "9" * 5000])
def test_concurrencies_that_are_none_or_too_few_are_one_sentence(text: str) -> None:
    with pytest.raises(StateError, match=r"takes (numbers from 1 to 65536|at least 3 different numbers)"):
        parse_steps(text)
