"""A long table in parts: every row is in exactly one part, and a mistyped number leads to none beyond."""

import pytest

from dashboards.table_part import ROWS, TablePart, parse_part


@pytest.mark.parametrize("rows", [0, 1, ROWS - 1, ROWS, ROWS + 1, 3000, 3001])
def test_every_row_is_in_one_part(rows: int) -> None:
    every, seen, number = list(range(rows)), list[int](), None
    while True:
        part = parse_part(number, rows)
        assert len(every[part.shown]) <= ROWS
        seen += every[part.shown]
        following = dict(part.neighbours()).get("Next")
        if following is None:
            break
        number = following
    assert seen == every
    assert part.number == part.last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((text, 1) for text in (None, "", "1", "0", "-2", "x", "1.5", "²", "9" * 5000)),
        *((text, 6) for text in ("6", "7", "999")),
        ("2", 2),
    ],
)
def test_what_is_no_part_is_the_first_and_what_is_beyond_the_last(text: str | None, number: int) -> None:
    assert parse_part(text, 3000).number == number


def test_a_part_says_which_rows_it_has_and_leads_to_those_beside_it() -> None:
    assert TablePart(1, 1200).phrase == "1 to 500 of 1,200"
    assert TablePart(3, 1200).phrase == "1,001 to 1,200 of 1,200"
    assert TablePart(1, 1200).neighbours() == [("Next", "2")]
    assert TablePart(2, 1200).neighbours() == [("Previous", None), ("Next", "3")]
    assert TablePart(3, 1200).neighbours() == [("Previous", "2")]
    assert TablePart(1, 500).neighbours() == []
