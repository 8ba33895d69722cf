"""What every benchmark prints."""

import pytest

from benchmarks.report import Bar, build_report


def test_a_machine_without_git_keeps_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    report = build_report("gateway", {"requests_per_second": 7.0}, [Bar("ratio", 7.0, 5.0, "least")])
    assert report["commit"] == ""
    assert report["results"] == {"requests_per_second": 7.0}
    assert report["bars"] == [{"what": "ratio", "value": 7.0, "bar": "at least 5.0", "holds": True}]
