"""What the rules editor suggests, at every kind of place in an unfinished file."""

from typing import Any

import pytest

from dashboards.rules.completion import ANY, Path, complete, place_of
from gateway.routing.rules import rules_json_schema

FROM: Path = ("rules", ANY, "choose", "from")
NAMES: dict[Path, list[str]] = {
    FROM: ["small", "large"],
    (*FROM, ANY): ["small", "large"],
    ("models", ANY, "backend"): ["openai"],
}
SCHEMA = rules_json_schema()
DEFINITIONS: Any = SCHEMA["$defs"]
RULE: list[str] = list(DEFINITIONS["Rule"]["properties"])
SOURCES = ["any", "hosted", "local", "small", "large"]


def labels(before: str) -> list[str]:
    return [one.label for one in complete(before, SCHEMA, NAMES)[1]]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", ["version", "models", "rules"]),
        ("version: 1\nru", ["rules"]),
        ("version: ", ["1"]),
        ("rules:\n  - ", RULE),
        ("rules:\n- na", ["name"]),
        ("rules:\n  - name: x\n    ", RULE),
        ("rules:\n  - name: x\n    when: {diff", ["difficulty"]),
        ("rules:\n  - name: x\n    when: {tags: [a], difficulty: {at_", ["at_least", "at_most"]),
        ("rules:\n  - name: x\n    when: {needs: [streaming, to", ["tools"]),
        ("rules:\n  - name: x\n    choose: {from: ", SOURCES),
        ("rules:\n  - name: x\n    choose: {from: [any, sm", ["small"]),
        ("rules:\n  - name: x\n    choose:\n      by: e", ["expected_cost"]),
        ("rules:\n  - name: x\n    choose:\n      from:\n        - l", ["large"]),
        ("rules:\n  - name: x\n    choose: {from: any,\n      if_none: ", ["best_quality", "refuse"]),
        ("models:\n  mine: {backend: o", ["openai"]),
        ("models:\n  mine:\n    up", ["upstream_model"]),
        ("rules:\n  # a comment, {\n  - name: x # and [ another\n    wh", ["when"]),
        ("rules:\n  - name: x\n    when: {tags: [never closed\n  - name: y\n    ch", ["choose"]),
        ("# by: ", []),
        ("unknown:\n  wh", []),
        ("version: 1 # ", []),
    ],
)
def test_suggestions(before: str, expected: list[str]) -> None:
    assert labels(before) == expected


def test_a_suggestion_says_what_it_takes_and_is_written_with_its_colon() -> None:
    word, options = complete("rules:\n  - name: x\n    choose: {mi", SCHEMA, {})
    assert word == "mi"
    assert [(one.insert, one.detail) for one in options] == [("min_quality: ", "number from 0 to 1")]
    [source] = complete("rules:\n  - choose: {fr", SCHEMA, {})[1]
    assert "any" in source.detail
    assert "required" in source.detail


def test_every_prefix_of_a_real_file_has_a_place() -> None:
    text = (
        "version: 1\nmodels:\n  a:\n    backend: b # c\nrules:\n  - name: x\n    when: {tags: [p, 'q'], "
        'difficulty: {at_most: 0.4}}\n    choose: {from: ["a"], by: order}\n\n  # last\n  - name: y\n    choose:\n'
        "      from:\n      - a\n"
    )
    for end in range(len(text) + 1):
        place_of(text[:end])
        complete(text[:end], SCHEMA, NAMES)
