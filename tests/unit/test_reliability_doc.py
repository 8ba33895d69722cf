"""Every test that docs/reliability.md names exists: a promise must not outlive what shows it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
NAMED = re.compile(r"`([\w/]+/test_\w+\.py)`|`(test_\w+)`")
"""A file, or one of its tests behind it."""


def test_every_test_that_the_page_names_exists() -> None:
    path, named = "", list[tuple[str, str]]()
    for file, test in NAMED.findall((ROOT / "docs/reliability.md").read_text(encoding="utf-8")):
        path = file or path
        named.append((path.removeprefix("tests/"), f"def {test}(" if test else ""))
    assert len(named) > 400
    missing = [
        f"{path}: {test}"
        for path, test in named
        if not (TESTS / path).is_file() or test not in (TESTS / path).read_text(encoding="utf-8")
    ]
    assert not missing
