"""Splits a rules file into its rules and joins them again: what nobody changed keeps every character. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

WIDEST = 10**6
LONGEST = 100_000
MOST_RULES = 200
"""Limits, because the web UI is one process: everybody waits while it parses YAML or builds a form."""
MERGE = "tag:yaml.org,2002:merge"
RULE = re.compile(r"rules\.(\d+)\.?")
NEW_RULE: Mapping[str, Any] = {"name": "", "when": {"difficulty": {"at_most": 0.5}}, "choose": {"from": "any"}}
EDIT_TEXT = "edit it in the text view."


class NotEditable(Exception):
    """A form cannot edit this text; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the comments above it, its own lines, and their content. If `text` is None, `content` is rendered."""

    comments: str
    text: str | None
    content: Mapping[str, Any]

    def with_content(self, content: Mapping[str, Any]) -> "Rule":
        return self if content == self.content else replace(self, text=None, content=content)

    @property
    def name(self) -> str:
        return str(self.content.get("name", ""))


@dataclass(frozen=True, slots=True)
class RulesText:
    """`head` ends before the first rule's comments, `tail` begins after the last rule."""

    head: str
    rules: tuple[Rule, ...]
    tail: str
    indent: int

    def join(self) -> str:
        parts = [rule.comments + (rule.text or render(rule.content, self.indent)) for rule in self.rules]
        return self.head + "".join(parts) + self.tail


def split_rules(text: str) -> RulesText:
    """Raises NotEditable."""
    if len(text) > LONGEST:
        raise NotEditable(
            f"The form takes at most {LONGEST:,} characters, and this text has {len(text):,}: {EDIT_TEXT}"
        )
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _require_plain(root)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date that does not exist
        raise NotEditable("This is not valid YAML: correct it in the text view; Check names the line.") from error
    rules = _rules_node(root)
    listed = content["rules"]
    if any(not isinstance(one, dict) for one in listed):
        raise NotEditable("A rule is not a map of name, when and choose: correct it in the text view.")
    if len(listed) > MOST_RULES:
        raise NotEditable(f"The form takes at most {MOST_RULES} rules, and there are {len(listed):,}: {EDIT_TEXT}")
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    starts = [node.start_mark.line for node in rules.value]
    ends = [_last_line(lines, start, stop) for start, stop in zip(starts, [*starts[1:], None], strict=True)]
    ends[-1] = min(ends[-1], _last_line(lines, starts[-1], rules.end_mark.line))
    befores = [_first_comment(lines, starts[0]), *(end + 1 for end in ends[:-1])]
    return RulesText(
        head="".join(lines[: befores[0]]),
        rules=tuple(
            Rule("".join(lines[before:start]), "".join(lines[start : end + 1]), one)
            for before, start, end, one in zip(befores, starts, ends, listed, strict=True)
        ),
        tail="".join(lines[ends[-1] + 1 :]),
        indent=rules.start_mark.column,
    )


def render(rule: Mapping[str, Any], indent: int) -> str:
    """A rule in this project's layout: one line each for its name, its conditions and its choice."""
    pad = " " * indent
    lines = [f"{pad}- name: {_scalar(rule.get('name', ''))}"]
    lines += [f"{pad}  {key}: {_flow(value)}" for key, value in rule.items() if key != "name"]
    return "\n".join(lines) + "\n"


def summary(rule: Mapping[str, Any]) -> str:
    """One line for people: `difficulty at most 0.4 → any, by expected_cost`."""
    when = rule.get("when") or {}
    conditions = " and ".join(_condition(name, value) for name, value in when.items()) or "everything else"
    choose = dict(rule.get("choose") or {})
    source = choose.pop("from", "?")
    chosen = source if isinstance(source, str) else ", ".join(str(one) for one in source)
    rest = "".join(f", {name.replace('_', ' ')} {value}" for name, value in choose.items())
    return f"{conditions} → {chosen}{rest}"


def rule_of(field: str) -> int | None:
    """The index of the rule that a problem's field belongs to: 1 for `rules.1.when`."""
    found = RULE.match(field)
    return int(found[1]) if found else None


def where(line: int | None, field: str) -> str:
    """`Line 24, rule 2: when.difficulty.at_most`: rules counted from 1, as the form counts them."""
    places = [
        *([] if line is None else [f"line {line}"]),
        *([] if (rule := rule_of(field)) is None else [f"rule {rule + 1}"]),
    ]
    place = ", ".join(places) or "this file"
    named = RULE.sub("", field, count=1) if rule is not None else field
    return place[0].upper() + place[1:] + (f": {named}" if named else "")


def moved(rules: Sequence[Rule], index: int, by: int) -> tuple[Rule, ...]:
    """The rules with one moved down `by` places; unchanged if it would leave the list."""
    target = index + by
    if not 0 <= target < len(rules):
        return tuple(rules)
    left = [*rules[:index], *rules[index + 1 :]]
    return (*left[:target], rules[index], *left[target:])


def _require_plain(root: yaml.Node | None) -> None:
    """Raises NotEditable for merges (`<<`): a few nested ones make billions of fields, and no form can write them."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen and isinstance(node, yaml.CollectionNode):
            seen.add(id(node))
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
            if any(part.tag == MERGE for part in parts):
                raise NotEditable("Write out what is merged (<<) in the text view to edit it here.")
            waiting += parts


def _rules_node(root: yaml.Node | None) -> yaml.SequenceNode:
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "rules" and isinstance(value, yaml.SequenceNode) and value.value:
                if value.flow_style:
                    raise NotEditable("Write each rule on lines of its own, beginning with a dash, to edit it here.")
                return value
    raise NotEditable("There are no rules in this text yet: begin with a line `rules:` in the text view.")


def _last_line(lines: Sequence[str], start: int, stop: int | None) -> int:
    """The last line, other than blanks and comments, of the item that begins at `start`; the next begins at `stop`."""
    last = start
    for number in range(start, len(lines) if stop is None else stop):
        line = lines[number].strip()
        if line and not line.startswith("#"):
            last = number
    return last


def _first_comment(lines: Sequence[str], start: int) -> int:
    """Where the comments right above a line begin."""
    while start > 0 and lines[start - 1].strip().startswith("#"):
        start -= 1
    return start


def _condition(name: str, value: Any) -> str:
    if isinstance(value, dict):
        ends = " and ".join(f"{key.replace('_', ' ')} {end}" for key, end in value.items())
        return f"{name.replace('_', ' ')} {ends}"
    shown = ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
    return f"{name.replace('_', ' ')} {shown}"


def _flow(value: Any) -> str:
    if not isinstance(value, (dict, list)):
        return _scalar(value)
    return yaml.safe_dump(value, default_flow_style=True, width=WIDEST, sort_keys=False, allow_unicode=True).strip()


def _scalar(value: Any) -> str:
    return yaml.safe_dump([value], default_flow_style=True, width=WIDEST, allow_unicode=True).strip()[1:-1]
