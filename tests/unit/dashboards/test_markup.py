"""Whatever comes from outside is shown as text: none of its tags, attributes or handlers survive."""

import difflib
import re
from html.parser import HTMLParser

import pytest

from dashboards import markup
from dashboards.markup import Cell, Column

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
OURS = {
    "wbr",
    "div",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "a",
    "code",
    "span",
    "i",
    "strong",
    "p",
    "dl",
    "dt",
    "dd",
}


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "made",
    [
        markup.table(
            [Column(HOSTILE, title=HOSTILE)],
            [[Cell(HOSTILE, href=HOSTILE, tone=HOSTILE, title=HOSTILE, is_code=True)], [HOSTILE]],
            caption=HOSTILE,
        ),
        markup.tile(HOSTILE, HOSTILE, HOSTILE, tone=HOSTILE, title=HOSTILE),
        markup.message(HOSTILE, HOSTILE, tone=HOSTILE),
        markup.facts([(HOSTILE, HOSTILE)]),
        markup.shares_bar([(HOSTILE, 1, HOSTILE)]),
        markup.diff(f"+{HOSTILE}\n-{HOSTILE}\n@@\n {HOSTILE}"),
        markup.side_by_side([HOSTILE], [HOSTILE * 2], difflib.SequenceMatcher(None, ["a"], ["b"]).get_opcodes()),
    ],
)
def test_hostile_text_stays_text(made: str) -> None:
    found = Tags(made)
    assert found.tags <= OURS
    assert not {name for name in found.attributes if name.startswith("on") or name == "src"}
    assert HOSTILE in found.text


def test_a_command_in_a_message_is_set_as_one() -> None:
    made = markup.message("Empty", "Or `breakeven demo --month` <b>`x`</b>.")
    assert "<code>breakeven demo --month</code> &lt;b&gt;<code>x</code>" in made


def test_a_number_leads_to_what_it_is_made_of() -> None:
    assert '<a href="/ui/explorer?by=team&amp;x=%3C">$5.00</a>' in markup.tile(
        "Spend", "$5.00", "30 days", href="/ui/explorer?by=team&x=%3C"
    )
    assert "<a" not in markup.tile("Spend", "$5.00", "30 days")


def test_a_number_keeps_its_unit_and_its_sign_on_one_line() -> None:
    shown = markup.unbroken("95 % under 8.82 s · 5-95 %: −$1.00 in 3 of 4 models")
    assert (
        shown.replace("\N{NO-BREAK SPACE}", "_") == "95_% under 8.82_s · 5-95_%: −\N{WORD JOINER}$1.00 in 3 of 4 models"
    )


def test_a_fact_is_not_broken_between_its_number_and_its_sign() -> None:
    assert "−\N{WORD JOINER}$10.95" in markup.facts([("How sure", "from −$11.75 to −$10.95")])


def test_a_command_in_a_fact_is_set_as_one() -> None:
    assert "its key: <code>A&lt;B</code>." in markup.facts([("A provider", "its key: `A<B`.")])


def test_numbers_are_set_right_and_a_caption_is_there() -> None:
    made = markup.table([Column("Spend", is_number=True)], [["$1.00"]], caption="Costs")
    assert 'class="be-number' in made
    assert "<caption" in made


def test_equal_runs_are_folded_and_nothing_else() -> None:
    old = [f"line {number}" for number in range(30)]
    new = [*old[:20], "changed", *old[21:]]
    made = markup.side_by_side(old, new, difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    assert made.count("equal lines") == 2
    assert ">17 equal lines<" in made
    assert ">6 equal lines<" in made
    assert "−line 20" in made
    assert "+changed" in made


def test_a_column_of_dollars_is_written_by_the_table_with_every_digit_to_whoever_points_at_it() -> None:
    rows: list[list[str | None]] = [["12.500000000001"], ["0.25"], [None], ["unknown"]]
    made = markup.table([Column("Cost", is_dollars=True)], rows, caption="Costs")
    assert re.findall(r'<td class="be-number "(?: title="([^"]*)")?>([^<]*)<', made) == [
        ("$12.500000000001", "$12.50"),
        ("$0.25", "$0.25"),
        ("", "–"),
        ("", "unknown"),
    ]


def test_a_diffs_head_names_the_versions_and_is_no_change() -> None:
    made = markup.diff("--- old\n+++ new\n@@ -1 +1 @@\n-a\n+b")
    kinds = [part.split('"')[0].strip() for part in made.split('class="be-diff-line ')[1:]]
    assert kinds == ["at", "at", "at", "del", "add"]


@pytest.mark.parametrize(("value", "is_small"), [("$0.0000489", True), ("34.8 tok/s", False), ("$1,234.56", False)])
def test_an_amount_that_would_break_in_two_is_set_smaller(value: str, is_small: bool) -> None:
    assert ("be-tile-value long" in markup.tile("Spend", value, "")) is is_small


def test_a_models_long_name_breaks_after_its_provider() -> None:
    assert "acme/<wbr>large" in markup.tile("Answered by", "acme/large", "")
    named = markup.table([Column("Model")], [[Cell("acme/large", tone="be-name long")]], caption="")
    assert "acme/<wbr>large" in named


def test_a_heading_that_can_be_ordered_by_says_how_the_rows_stand() -> None:
    columns = [Column("Team", href="explorer?order=team&x=<"), Column("Spend", href="explorer", sort="descending")]
    made = markup.table(columns, [["a", "1"]], caption="c")
    assert '<th scope="col" class=""><a href="explorer?order=team&amp;x=&lt;">Team</a></th>' in made
    assert '<th scope="col" class="" aria-sort="descending"><a href="explorer">Spend</a></th>' in made


def test_back_leaves_in_the_fields_of_a_form_what_its_page_shows() -> None:
    """Chromium restored the last choice after Back: a page of spend by team said that it was grouped by model."""
    made = markup.filters("keys", "<input>", button="Search")
    assert made.startswith(
        '<form class="be-filters" method="get" action="keys" role="search" autocomplete="off"><input>'
    )
    assert "role" not in markup.filters("explorer", "")


def test_a_file_comes_in_two_forms() -> None:
    made = markup.downloads("These <rows>", lambda form: f"export/costs.{form}?a=1&b=2")
    assert made.startswith("<span>These &lt;rows&gt;: <a href=")
    assert '<a href="export/costs.csv?a=1&amp;b=2" download>CSV</a> or <a href="export/costs.parquet?' in made
