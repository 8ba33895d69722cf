"""What every benchmark prints."""

import json
from typing import Literal

import pytest

from benchmarks.report import Bar, build_report, options, publish


def test_a_machine_without_git_keeps_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    report = build_report("gateway", {"requests_per_second": 7.0}, [Bar("ratio", 7.0, 5.0, "least")])
    assert report["commit"] == ""
    assert report["results"] == {"requests_per_second": 7.0}
    assert report["bars"] == [{"what": "ratio", "value": 7.0, "bar": "at least 5.0", "holds": True}]


@pytest.mark.parametrize(
    ("is_at", "holds"), [("least", [False, True, True]), ("most", [True, True, False]), ("above", [False, False, True])]
)
def test_what_a_bar_lets_pass(is_at: Literal["least", "most", "above"], holds: list[bool]) -> None:
    assert [Bar("gain", value, 0.0, is_at).holds for value in (-0.1, 0.0, 0.1)] == holds


def test_people_read_words_where_there_are_some_and_programs_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    report = build_report("gateway", {}, [])
    for asked, words in (([], "faster"), (["--json"], "faster"), ([], None)):
        publish(report, options("Measures.").parse_args(asked), words)
        printed = capsys.readouterr().out
        assert printed == "faster\n" if words and not asked else json.loads(printed) == report
