"""No call that every request makes has so many keywords that Python collects them in a dictionary first."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PLACES_ON_STACK = 30
"""CPython's STACK_USE_GUIDELINE: a call that needs more, at two for each keyword, takes a dictionary instead."""


@pytest.mark.parametrize(
    "source",
    [
        "backends/formats/usage_wire.py",
        "gateway/request/dispatch.py",
        "gateway/request/facts.py",
        "gateway/request/settlement.py",
        "gateway/request/view.py",
        "gateway/storage/rows/entry_detail.py",
    ],
)
def test_no_call_collects_its_keywords_in_a_dictionary(source: str) -> None:
    calls = [one for one in ast.walk(ast.parse((ROOT / source).read_text("utf-8"))) if isinstance(one, ast.Call)]
    found = [one.lineno for one in calls if one.keywords and len(one.args) + 2 * len(one.keywords) > PLACES_ON_STACK]
    assert not found, "pass the first of these arguments by position, in the order of the fields"
