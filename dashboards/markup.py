"""Pieces of HTML as text. Everything that comes from outside is escaped here; the browser sanitizes it once more."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from dashboards import display
from dashboards.charts import COLOURS

COMMAND = re.compile("`([^`]+)`")
UNIT = re.compile(r"(?<=\d) (?=%|(?:ms|s|h|min|tok/s|k|M|G)\b)")
MINUS = re.compile(r"−(?=\$)")
CONTEXT_LINES = 3
SIDES = "Active rules on the left, edited rules on the right"
NAME = "be-name"
"""The tone of a cell with a name, which may be long: it wraps after a slash rather than within a word."""
LONG_WORD = 9
"""A tile shows longer words in a smaller font: at full size an amount such as $0.0000489 would wrap."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell. `tone` is good, warn, bad or muted."""

    text: str
    href: str | None = None
    tone: str = ""
    title: str = ""
    is_code: bool = False
    bar: float | None = None
    """A share from 0 to 1, drawn beside the text."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. Numbers are right-aligned. Cells of dollars are decimal text, formatted with equal decimal places.

    `href` sorts the rows by this column; `sort` is set if they are sorted by it now.
    """

    name: str
    is_number: bool = False
    title: str = ""
    is_dollars: bool = False
    href: str | None = None
    sort: Literal["ascending", "descending"] | None = None


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str | None]], *, caption: str) -> str:
    """A table that scrolls sideways on its own on a phone; screen readers announce its caption."""
    head = "".join(
        f'<th scope="col" class="{_align(column)}"{_title(column.title)}{_sorted(column)}>{_heading(column)}</th>'
        for column in columns
    )
    cells = [[_as_cell(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        if column.is_dollars:
            _write_dollars(cells, index)
    body = "".join(
        "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True)) + "</tr>"
        for row in cells
    )
    name = escape(caption)
    return (
        f'<div class="be-scroll" role="group" aria-label="{name}" tabindex="0"><table class="be-table">'
        f'<caption class="be-hidden">{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _as_cell(cell: Cell | str | None) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(display.UNKNOWN if cell is None else cell)


def _write_dollars(rows: Sequence[list[Cell]], index: int) -> None:
    """With equal decimal places; the tooltip has every digit."""
    for row, text in zip(rows, display.dollar_column([row[index].text for row in rows]), strict=True):
        cell = row[index]
        title = cell.title or (display.exact_dollars(cell.text) if text != cell.text else "")
        row[index] = replace(cell, text=text, title=title)


def counted(count: int, what: str) -> str:
    """`1 request`, `12,011 requests`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def unbroken(text: str) -> str:
    """Keeps a number on one line with its unit and its sign."""
    return MINUS.sub("−\N{WORD JOINER}", UNIT.sub("\N{NO-BREAK SPACE}", text))


def tile(label: str, value: str, note: str, *, tone: str = "", title: str = "", href: str | None = None) -> str:
    """One number: what it is, its value with unit, the time it is about, and where it comes from."""
    size = " long" if any(len(word) > LONG_WORD for word in value.split()) else ""
    text = escape(value).replace("/", "/<wbr>")
    shown = text if href is None else f'<a href="{escape(href)}">{text}</a>'
    return (
        f'<div class="be-tile {escape(tone)}"{_title(title)}><div class="be-tile-label">{escape(label)}</div>'
        f'<div class="be-tile-value{size}">{shown}</div><div class="be-tile-note">{escape(unbroken(note))}</div></div>'
    )


def tiles(each: Iterable[str]) -> str:
    return f'<div class="be-tiles">{"".join(each)}</div>'


def shares_bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """One bar of named parts, each as wide as its share, and below it their names and what is said of each."""
    total = sum(value for _, value, _ in parts) or 1.0
    coloured = list(zip(parts, COLOURS, strict=False))
    bar = "".join(
        f'<span style="width:{100 * value / total:.3f}%;background:{colour}"></span>'
        for (_, value, _), colour in coloured
    )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}: {escape(said)}</span>'
        for (name, _, said), colour in coloured
    )
    return f'<div class="be-bar">{bar}</div><div class="be-legend">{legend}</div>'


def message(title: str, text: str, *, tone: str = "") -> str:
    """An empty state or an error. A `command` in the text becomes code."""
    shown = f"<strong>{escape(title)}</strong><p>{_said(text)}</p>"
    return f'<div class="be-message {escape(tone)}" role="status">{shown}</div>'


def _said(text: str) -> str:
    return COMMAND.sub(r"<code>\1</code>", escape(text))


def facts(pairs: Iterable[tuple[str, str | Sequence[Cell]]]) -> str:
    """A list of names and values: text, in which a `command` becomes code, or cells, which may be code or links."""
    each = "".join(f"<dt>{escape(name)}</dt><dd>{_fact(value)}</dd>" for name, value in pairs)
    return f'<dl class="be-facts">{each}</dl>'


def _fact(value: str | Sequence[Cell]) -> str:
    return _said(unbroken(value)) if isinstance(value, str) else ", ".join(_content(one) for one in value)


def downloads(what: str, address: Callable[[str], str]) -> str:
    """Links to a file in both formats; `address` is called with csv or parquet."""
    forms = (("csv", "CSV"), ("parquet", "Parquet"))
    links = (f'<a href="{escape(address(form))}" download>{label}</a>' for form, label in forms)
    return f"<span>{escape(what)}: {' or '.join(links)}</span>"


def diff(text: str) -> str:
    """A unified diff with coloured lines, which keep their signs for those who see no colours. Two lines of header."""
    tones = {"+": "add", "-": "del", "@": "at"}
    lines = "".join(
        f'<div class="be-diff-line {"at" if number < 2 else tones.get(line[:1], "")}">{escape(line) or " "}</div>'
        for number, line in enumerate(text.splitlines())
    )
    return f'<div class="be-diff" role="group" aria-label="Changes" tabindex="0">{lines}</div>'


def side_by_side(old: Sequence[str], new: Sequence[str], opcodes: Iterable[tuple[str, int, int, int, int]]) -> str:
    """Two texts side by side, aligned by difflib's opcodes; long equal runs are folded."""
    rows: list[str] = []
    for tag, a1, a2, b1, b2 in opcodes:
        before, after = CONTEXT_LINES if a1 else 0, CONTEXT_LINES if a2 < len(old) else 0
        if tag == "equal" and (folded := a2 - a1 - before - after) > 1:
            rows += [_pair(old, new, a1 + i, b1 + i, "") for i in range(before)]
            rows.append(f'<tr class="be-fold"><td colspan="4">{folded} equal lines</td></tr>')
            rows += [_pair(old, new, a2 - after + i, b2 - after + i, "") for i in range(after)]
            continue
        for i in range(max(a2 - a1, b2 - b1)):
            left, right = (a1 + i if a1 + i < a2 else None), (b1 + i if b1 + i < b2 else None)
            rows.append(_pair(old, new, left, right, "" if tag == "equal" else "changed"))
    return (
        f'<div class="be-scroll" role="group" aria-label="{SIDES}" tabindex="0"><table class="be-sides">'
        f'<caption class="be-hidden">{SIDES}</caption><tbody>{"".join(rows)}</tbody></table></div>'
    )


def filters(page: str, fields: str, *, button: str = "Show") -> str:
    """A form that asks for `page` again with what its fields say. It has no autocomplete: after Back, browsers put what
    was chosen last into the fields of a page that shows something else."""
    role = ' role="search"' if button == "Search" else ""
    return (
        f'<form class="be-filters" method="get" action="{page}"{role} autocomplete="off">{fields}'
        f'<button class="be-button" type="submit">{button}</button></form>'
    )


def _pair(old: Sequence[str], new: Sequence[str], left: int | None, right: int | None, tone: str) -> str:
    def half(lines: Sequence[str], index: int | None, kind: str) -> str:
        if index is None:
            return '<td class="be-line"></td><td class="be-void"></td>'
        sign = {"del": "−", "add": "+"}.get(kind, "") if tone else ""
        return (
            f'<td class="be-line">{index + 1}</td>'
            f'<td class="{kind if tone else ""}">{sign}{escape(lines[index]) or " "}</td>'
        )

    return f"<tr>{half(old, left, 'del')}{half(new, right, 'add')}</tr>"


def _cell(cell: Cell, column: Column) -> str:
    return f'<td class="{_align(column)} {escape(cell.tone)}"{_title(cell.title)}>{_content(cell)}</td>'


def _content(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.tone.startswith(NAME):
        text = text.replace("/", "/<wbr>")
    if cell.is_code:
        text = f"<code>{text}</code>"
    if cell.bar is not None:
        text = f'<span class="be-gauge"><i style="width:{100 * cell.bar:.1f}%"></i></span>{text}'
        text = f'<span class="be-nowrap">{text}</span>'
    if cell.href is not None:
        text = f'<a href="{escape(cell.href)}">{text}</a>'
    return text


def _heading(column: Column) -> str:
    name = escape(column.name)
    return name if column.href is None else f'<a href="{escape(column.href)}">{name}</a>'


def _sorted(column: Column) -> str:
    return "" if column.sort is None else f' aria-sort="{column.sort}"'


def _align(column: Column) -> str:
    return "be-number" if column.is_number or column.is_dollars else ""


def _title(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""
