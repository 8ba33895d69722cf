"""A rules file is accepted as a whole, or refused with the line of the error."""

import json
import random
from time import process_time

import pytest

from gateway.errors import ConfigurationError
from gateway.routing.rules import When
from gateway.routing.rules_text import implies, parse_rules

GOOD = """\
version: 1
models:
  small-local: {backend: local, upstream_model: smollm2-135m-instruct, context_window: 8192}
  mid-hosted:
    backend: openai
    upstream_model: gpt-5.4-mini
    context_window: 400000
    supports: [streaming, tools]
rules:
  - name: private-stays-local
    when: {tags: [private]}
    choose: {from: [small-local]}
  - name: easy
    when: {difficulty: {at_most: 0.35}}
    choose: {from: [small-local, mid-hosted], by: expected_cost, min_quality: 0.6, max_time_to_first_token_seconds: 2}
  - name: default
    choose: {from: any}
"""


def test_the_documented_example_is_valid() -> None:
    document = parse_rules(GOOD)
    assert [rule.name for rule in document.rules] == ["private-stays-local", "easy", "default"]
    assert document.models["mid-hosted"].supports == ["streaming", "tools"]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("backend: openai", "backnd: openai", 5, "not a known field"),
        ("supports: [streaming, tools]", "benchmarks: {mmlu: 72}", 8, "must be at most 1"),
        ("[small-local]}", "[small-lokal]}", 12, "unknown model 'small-lokal'; known: mid-hosted, small-local"),
        ("at_most: 0.35", "at_most: easy", 14, "must be a number"),
        ("at_most: 0.35", "at_most: 0.35, at_least: 0.5", 14, "can never match"),
        ("at_most: 0.35", "at_most: 35", 14, "must be at most 1"),
        ("difficulty: {at_most: 0.35}", "uncertainty: {at_least: -0.1}", 14, "must be at least 0"),
        ("difficulty: {at_most: 0.35}", "input_tokens: {at_most: -1}", 14, "must be at least 0"),
        ("tags: [private]", "operation: [chat]", 11, "must be 'chat.completions', 'completions', 'embeddings'"),
        ("tags: [private]", "tags: []", 11, "has too few items: at least 1"),
        ("name: easy", "name: easy ones", 13, "no blanks"),
        ("choose: {from: any}", "when: {tags: [x]}\n    choose: {from: any}", 17, "last rule must have no `when`"),
        ("    when: {tags: [private]}\n", "", 10, "can never match"),
        ("name: easy", "name: default", 16, "used twice"),
        ("by: expected_cost", "by: luck", 15, "'expected_cost', 'quality' or 'order'"),
        ("version: 1", "version: 2", 1, "must be 1"),
        ("min_quality: 0.6", "min_quality: 1.6", 15, "must be at most 1"),
        ("min_quality: 0.6", "min_quality: .nan", 15, "finite"),
        ("name: easy", "name: easy\n    name: hard", 14, "is given twice"),
        ("  - name: easy", " - name: easy", 13, "not valid YAML"),
        ("tags: [private]", "needs: [embeddings]", 11, "'streaming'"),
        ("[streaming, tools]", "[tools, embeddings]", 4, "a model for embeddings does nothing else"),
        ("small-local: {", "auto: {", 3, '"auto" is the routed name'),
    ],
)
def test_an_error_names_the_line(old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigurationError) as caught:
        parse_rules(GOOD.replace(old, new, 1), file="rules.yaml")
    assert says in caught.value.problem
    assert caught.value.line == line
    assert str(caught.value).startswith(f"rules.yaml:{line}: ")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("[]", "has too few items: at least 1"),
        ("[small-local, small-local]", "an item is listed twice"),
        ("everything", "must be a list, as in [one, two], or must be 'any', 'hosted' or 'local'"),
    ],
)
def test_a_field_that_is_a_word_or_a_list_says_what_it_may_be(given: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_rules(GOOD.replace("from: any", f"from: {given}"))
    assert (caught.value.field, caught.value.problem) == ("rules.2.choose.from", problem)


@pytest.mark.parametrize(
    "text", ["", "\n# nothing\n", "[]", "just words", "version: 1", "\t", "a: &a [*a]", "x" * 1_000_001]
)
def test_broken_documents_are_configuration_errors(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_rules(text)


def test_a_rule_that_an_earlier_one_swallows_is_an_error() -> None:
    text = GOOD.replace(
        "  - name: default",
        "  - name: easier\n    when: {difficulty: {at_most: 0.2}, team: [a]}\n    choose: {from: any}\n"
        "  - name: default",
    )
    with pytest.raises(ConfigurationError, match="'easy' above takes every such request"):
        parse_rules(text)


def test_the_first_rule_above_that_takes_every_request_is_found_among_many() -> None:
    draw = random.Random(1)
    found = 0
    for _ in range(300):
        whens = [_some_conditions(draw) for _ in range(draw.randrange(2, 9))]
        rules = [{"name": f"r{place}", "when": when, "choose": {"from": "any"}} for place, when in enumerate(whens)]
        text = json.dumps({"version": 1, "rules": [*rules, {"name": "last", "choose": {"from": "any"}}]})
        parsed = [When.model_validate(when) for when in whens]
        pairs = ((late, early) for late in range(len(whens)) for early in range(late))
        taken = next((pair for pair in pairs if implies(parsed[pair[0]], parsed[pair[1]])), None)
        if taken is None:
            parse_rules(text)
            continue
        found += 1
        with pytest.raises(ConfigurationError) as caught:
            parse_rules(text)
        assert caught.value.problem == f"can never match: 'r{taken[1]}' above takes every such request"
        assert caught.value.field == f"rules.{taken[0]}"
    assert 50 < found < 250


def test_many_rules_that_name_nothing_are_not_compared_each_with_all() -> None:
    ranges = [{"difficulty": {"at_most": (one + 1) / 2_000}, "input_tokens": {"at_least": one}} for one in range(1_500)]
    rules = [{"name": f"r{place}", "when": when, "choose": {"from": "any"}} for place, when in enumerate(ranges)]
    text = json.dumps({"version": 1, "rules": [*rules, {"name": "last", "choose": {"from": "any"}}]})
    began = process_time()
    assert len(parse_rules(text).rules) == 1_501
    assert process_time() - began < 2  # half a minute for the most that a file holds, before


def _some_conditions(draw: random.Random) -> dict[str, object]:
    possible: dict[str, object] = {
        "tags": draw.sample(["a", "b", "c"], draw.randrange(1, 4)),
        "team": draw.sample(["x", "y", "z"], draw.randrange(1, 4)),
        "operation": draw.sample(["messages", "responses"], draw.randrange(1, 3)),
        "model": draw.sample(["auto", "m"], draw.randrange(1, 3)),
        "needs": draw.sample(["tools", "vision"], draw.randrange(1, 3)),
        "difficulty": {"at_most": draw.choice([0.2, 0.5])},
    }
    return {name: possible[name] for name in draw.sample(list(possible), draw.randrange(1, 4))}


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ({"tags": ["a", "b"]}, {"tags": ["a"]}, True),
        ({"tags": ["a"]}, {"tags": ["a", "b"]}, False),
        ({"team": ["a"]}, {"team": ["a", "b"]}, True),
        ({"team": ["a", "c"]}, {"team": ["a", "b"]}, False),
        ({"difficulty": {"at_most": 0.2}}, {"difficulty": {"at_most": 0.3}}, True),
        ({"difficulty": {"at_most": 0.2}}, {"difficulty": {"at_least": 0.1, "at_most": 0.3}}, False),
        ({"team": ["a"]}, {"difficulty": {"at_most": 0.3}}, False),
    ],
)
def test_implies(narrow: dict[str, object], wide: dict[str, object], expected: bool) -> None:
    assert implies(When.model_validate(narrow), When.model_validate(wide)) is expected
