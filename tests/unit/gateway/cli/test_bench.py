"""What `breakeven bench engine` shows of a measured curve."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.bench import curve_table, describe, draw, fit_text, parse_steps
from gateway.config.engine_curve import CurveFile, MeasuredEngine, fit_engine
from gateway.config.home import Home
from gateway.errors import ConfigurationError, StateError


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
    assert not described["is_interpolated"]


def test_points_on_no_line_are_not_told_as_one() -> None:
    assert fit_text(measured().engine.curve) == "t(N) = 0.0333 + 0.0167·N s."
    busy = fit_engine(CurveFile("tiny", 185.0, [(1, 46.5), (2, 50.5), (4, 30.6)]))
    assert describe(busy)["is_interpolated"]
    told = fit_text(busy.engine.curve)
    assert told.startswith("The points are on no line that an engine can have (the nearest, t(N) = -0.0241 + 0.03")
    assert "are interpolated" in told


@pytest.mark.parametrize("text", ["", "1,,2", "0,1,2", "one", "1,-2", "1,1,2", "1,2,65537", "1,2," + "9" * 5000])
def test_concurrencies_that_are_none_or_too_few_are_one_sentence(text: str) -> None:
    with pytest.raises(StateError, match=r"takes (numbers from 1 to 65536|at least 3 different numbers)"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vlm"], "no backend 'vlm' in breakeven.yaml; there are: vllm, ranker"),
        (["ranker"], "rules.yaml names no chat model of ranker: write one under `models`"),
        (["vllm", "--model", "bge"], "'bge' is no chat model of vllm in rules.yaml; there are: llama"),
    ],
)
def test_a_server_without_a_model_to_ask_is_not_measured(home: Home, words: list[str], said: str) -> None:
    blocks = "".join(f"  {name}: {{base_url: 'http://127.0.0.1:1/v1'}}\n" for name in ("vllm", "ranker"))
    home.root.mkdir()
    home.config_file.write_text(f"backends:\n{blocks}")
    home.rules_file.write_text(
        "version: 1\nmodels:\n  llama: {backend: vllm, upstream_model: l, context_window: 9}\n"
        "  bge: {backend: ranker, upstream_model: b, context_window: 9, supports: [rerank]}\n"
        "rules: [{name: default, choose: {from: [llama]}}]\n"
    )
    result = CliRunner().invoke(build("bench"), ["bench", "backend", *words])
    assert (type(result.exception), str(result.exception)) == (ConfigurationError, said)
