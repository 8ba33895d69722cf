"""docs/architecture.md shows the tree as it is: every room, every file beside them, each name where it stands."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GATEWAY = ROOT / "gateway"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
INSIDE, _, BESIDE = PAGE.partition("Inside the gateway")[2].partition("## A request's path")[0].partition("Beside the")
PLACED = re.compile(r"((?:`\w+`(?:, )?)+) in `([\w/]+\.(?:py|yaml))`")
"""Names of what stands in a file."""


def folders(parent: Path) -> set[str]:
    return {one.name for one in parent.iterdir() if any(one.glob("*.py"))}


def test_every_room_is_shown_and_no_other() -> None:
    first_of_rows = re.findall(r"^\| ((?:`\w+/`(?:, )?)+) \|", INSIDE, re.MULTILINE)
    assert {room for row in first_of_rows for room in re.findall(r"`(\w+)/`", row)} == folders(GATEWAY)
    storage = next(line for line in INSIDE.splitlines() if "`storage/`" in line)
    assert set(re.findall(r"`(\w+)/`", storage)) - {"config", "storage"} == folders(GATEWAY / "storage")
    shown = set(re.findall(r"^\| `(\w+)/`", PAGE.partition("Inside the gateway")[0], re.MULTILINE))
    assert {one for one in folders(ROOT) if one != "tests"} <= shown | {"benchmarks"}


def test_every_file_beside_the_rooms_is_shown() -> None:
    files = {one.name for one in GATEWAY.glob("*.py") if not one.name.startswith("__")}
    assert files <= set(re.findall(r"`(\w+\.py)`", BESIDE))


def test_every_name_stands_where_it_is_said_to() -> None:
    placed = [(name, file) for names, file in PLACED.findall(PAGE) for name in re.findall(r"\w+", names)]
    assert len(placed) > 12
    assert not [(name, file) for name, file in placed if not re.search(rf"\b{name}\b", (ROOT / file).read_text())]
