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


@pytest.mark.parametrize(
    ("tag", "printed"),
    [
        ("[/b]", "[/b]"),
        ("[link=https://x]y[/link]", "[link=https://x]y[/link]"),
        (":boom:", ":boom:"),
        ("\x1b[2J\x07\u202e", r"\x1b[2J\x07\u202e"),
        ("München's", "München's"),
    ],
)
def test_a_tag_is_printed_as_its_caller_wrote_it_and_does_nothing(capsys: Printed, tag: str, printed: str) -> None:
    table = Table("tag", "cost $", title=tag)
    table.add_row(tag, "1")
    show_table(table)
    said = capsys.readouterr().out
    assert said.count(printed) == 2
    assert "\x1b" not in said
