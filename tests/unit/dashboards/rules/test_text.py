"""A rules file is split and joined again: what nobody edited keeps every character."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards.rules.fields import rule_fields, with_value
from dashboards.rules.text import NotEditable, moved, render, split_rules, summary, where
from gateway.config.first_files import first_rules
from gateway.config.settings import EngineSettings
from gateway.routing.rules import rules_json_schema
from gateway.routing.rules_text import parse_rules

FIRST = first_rules(EngineSettings(name="smol", context_window=8192))
ODD = """rules:
- name: a # why
  when:
    tags: [x]

  choose: {from: any}
# after a

# before b
- name: "b"
  choose: {from: [x]}
# the end
models:
  x: {}"""


@pytest.mark.parametrize("text", [FIRST, ODD + "\n"])
def test_taken_apart_and_joined_nothing_changes(text: str) -> None:
    assert split_rules(text).join() == text


def test_an_edit_touches_its_own_rule_only() -> None:
    text = split_rules(FIRST)
    edited = text.rules[1].with_content(with_value(text.rules[1].content, "choose", "min_quality", 0.7))
    joined = type(text)(text.head, (text.rules[0], edited, text.rules[2]), text.tail, text.indent).join()
    assert joined == FIRST.replace(
        "choose: {from: any, by: expected_cost}", "choose: {from: any, by: expected_cost, min_quality: 0.7}"
    )


def test_a_rule_moves_with_its_comments() -> None:
    text = split_rules(ODD)
    swapped = type(text)(text.head, moved(text.rules, 1, -1), text.tail, text.indent).join()
    assert swapped.index("# before b") < swapped.index('"b"') < swapped.index("name: a # why")
    assert yaml.safe_load(swapped)["models"] == {"x": {}}
    assert moved(text.rules, 0, -1) == text.rules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rules: [", "not valid YAML"),
        ("", "no rules"),
        ("rules: []", "no rules"),
        ("rules: {a: 1}", "no rules"),
        ("rules: [{name: x, choose: {from: any}}]", "lines of its own"),
        ("rules:\n  - just text", "not a map"),
        ("rules:\n" + "  - {}\n" * 201, "at most 200 rules, and there are 201"),
        ("#" * 100_001, "at most 100,000 characters"),
        ("rules: " + "[" * 2_000, "not valid YAML"),
        ("rules:\n- name: 2026-02-30\n", "is not valid YAML"),
        ("a: &a {k: v}\nrules:\n- name: a\n  choose: {<<: [*a, *a]}\n", "Write out what is merged"),
    ],
)
def test_what_no_form_can_show_is_said(text: str, why: str) -> None:
    with pytest.raises(NotEditable, match=why):
        split_rules(text)


names = st.text("abc -:#'\"{}[]äß", min_size=1, max_size=8)
contents = st.fixed_dictionaries(
    {
        "name": names,
        "when": st.fixed_dictionaries({"tags": st.lists(names, min_size=1, max_size=3)}),
        "choose": st.fixed_dictionaries({"from": names, "min_quality": st.floats(0, 1)}),
    }
)


@settings(max_examples=30)
@given(contents)
def test_a_rule_is_written_so_that_it_is_read_back(content: dict[str, object]) -> None:
    text = "rules:\n" + render(content, 2)
    assert yaml.safe_load(text)["rules"] == [content]
    assert split_rules(text).rules[0].content == content


def test_a_rule_in_a_sentence() -> None:
    rule = {"name": "x", "when": {"difficulty": {"at_most": 0.4}, "tags": ["a", "b"]}, "choose": {"from": ["m"]}}
    assert summary(rule) == "difficulty at most 0.4 and tags a, b → m"
    assert summary({"name": "y", "choose": {"from": "any", "by": "order"}}) == "everything else → any, by order"


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        (24, "rules.1.when.difficulty.at_most", "Line 24, rule 2: when.difficulty.at_most"),
        (None, "rules.1", "Rule 2"),
        (3, "models.small", "Line 3: models.small"),
        (7, "", "Line 7"),
        (None, "", "This file"),
    ],
)
def test_a_mistake_is_of_the_rule_that_the_form_counts_so(line: int | None, field: str, said: str) -> None:
    """The gateway's `rules.1` is the rule that the form numbers 2."""
    assert where(line, field) == said


def test_fields_come_from_the_published_schema() -> None:
    when = {field.name: field.kind for field in rule_fields(rules_json_schema(), "when")}
    choose = {field.name: field for field in rule_fields(rules_json_schema(), "choose")}
    assert (when["difficulty"], when["tags"], when["needs"]) == ("range", "words", "choices")
    assert choose["from"].options == ("any", "hosted", "local")
    assert (choose["min_quality"].low, choose["min_quality"].high) == (0, 1)
    assert choose["max_cost_usd"].label == "Max cost, $"


def test_a_form_can_write_every_field_of_the_schema() -> None:
    """The form has every field of the schema."""
    rule = rules_json_schema()["$defs"]
    assert isinstance(rule, dict)
    for part, name in (("when", "When"), ("choose", "Choose")):
        fields = rule_fields(rules_json_schema(), part)  # pyright: ignore[reportArgumentType]
        assert {field.name for field in fields} == set(rule[name]["properties"])


def test_fields_are_set_and_taken_out() -> None:
    content = {"name": "x", "choose": {"from": "any"}}
    limited = with_value(content, "when", "tags", ["a"])
    assert list(limited) == ["name", "when", "choose"]
    assert with_value(limited, "when", "tags", None) == content
    text = "version: 1\nmodels: {m: {backend: b, upstream_model: m, context_window: 1}}\nrules:\n"
    last = render({"name": "last", "choose": {"from": "any"}}, 2)
    assert len(parse_rules(text + render(limited, 2) + last).rules) == 2
