"""Every test that docs/reliability.md names exists: a promise must not outlive what shows it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`|`(test_\w+)`")
"""A file with one test of it, or with tests of it behind it."""


def test_every_test_that_the_page_names_exists() -> None:
    path, named = "", list[tuple[str, str]]()
    for file, one, other in NAMED.findall((ROOT / "docs/reliability.md").read_text(encoding="utf-8")):
        path = file or path
        named += [(path, one or other)] if one or other else []
    assert len(named) > 150
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert not missing
