"""Tables of figures are never cut, however narrow the terminal is."""

import pytest
from rich.table import Table

from gateway.cli.show_table import show_table

Printed = pytest.CaptureFixture[str]


def test_no_digit_is_lost_in_a_narrow_terminal(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("model", "cost $", "requests")
    table.add_row("a-model-with-a-long-name", "0.000037312222", "12,345,678")
    show_table(table)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "12,345,678" in line]
    assert "a-model-with-a-long-name" in line
    assert "0.000037312222" in line
