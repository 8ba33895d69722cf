"""YAML with line numbers, for both ways to read scalars."""

from typing import Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import ConfigurationError
from gateway.yaml_document import LOADERS, parse_yaml, validate_yaml

TEXT = """\
first: 1
second:
  - {name: a}
  - name: b
    deep: {x: 2.50}
"""
Scalars = Literal["typed", "text"]
BOTH: tuple[Scalars, ...] = ("typed", "text")


def test_scalars_are_typed_or_stay_text() -> None:
    typed, text = (parse_yaml(TEXT, file="f", scalars=one).value for one in BOTH)
    assert typed == {"first": 1, "second": [{"name": "a"}, {"name": "b", "deep": {"x": 2.5}}]}
    assert text == {"first": "1", "second": [{"name": "a"}, {"name": "b", "deep": {"x": "2.50"}}]}


@pytest.mark.parametrize("scalars", BOTH)
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("first",), 1),
        (("second",), 2),
        (("second", 1), 4),
        (("second", 1, "deep", "x"), 5),
        (("second", 7), 2),
    ],
)
def test_a_path_has_the_line_of_its_deepest_part(path: tuple[str | int, ...], line: int, scalars: Scalars) -> None:
    assert parse_yaml(TEXT, file="f", scalars=scalars).line(path) == line


@pytest.mark.parametrize("scalars", BOTH)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f:1: is empty"),
        ("# nothing\n", "f:1: is empty"),
        ("a: 1\nb: 2\na: 3\n", "f:3: a: is given twice, first in line 1"),
        ("a: {b: 1, c: [{d: 1, d: 2}]}\n", "f:1: d: is given twice"),
        ("a: [1\n", "f:2: not valid YAML"),
        ("a: 1\nb: 'x\nc: 2\nd: 3\n", "f:2: not valid YAML: found unexpected end of stream; is the quote"),
        ('a: 1\nb: "x\nc: 2\nd: 3\n', "f:2: not valid YAML: found unexpected end of stream; is the quote"),
        ("é: ü\nb: \x07\n", "f:2: has the invalid character '\\x07'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, says: str, scalars: Scalars) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(text, file="f", scalars=scalars)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("text", ["a: !!int ''", "a: !!timestamp x", "a: 1" + ":00" * 300 + ".5"])
def test_what_its_loader_breaks_at_is_not_valid(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^f: not valid YAML: "):
        parse_yaml(text, file="f")


@pytest.mark.parametrize("text", ["a: 1" + ":00" * 300_000, "a: 0x" + "f" * 900_000, "a: !!float 1" + ":00" * 400])
def test_a_number_too_long_to_be_one_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a number has more than 1,000 characters"):
        parse_yaml(text, file="f")


@pytest.mark.parametrize("scalars", BOTH)
@pytest.mark.parametrize("text", ["a: 1\nb: [1,\n  2\nc: 3\n", "a: 1\nb: {c: 1\nd: 2\n"])
def test_a_bracket_that_stays_open_is_named_where_it_opens(text: str, scalars: Scalars) -> None:
    with pytest.raises(ConfigurationError, match=r"not valid YAML: .*; is the bracket that opens in line 2 closed\?$"):
        parse_yaml(text, file="f", scalars=scalars)


def test_what_is_merged_may_be_said_otherwise() -> None:
    assert parse_yaml("a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}\n", file="f").value == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 1, "c": 3},
    }


def test_merges_that_double_one_another_are_refused_before_they_are_made() -> None:
    lines = ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))]
    with pytest.raises(ConfigurationError, match=r"merged mappings \(<<\) add up to more than 10,000 fields"):
        parse_yaml("\n".join(lines), file="f")
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        parse_yaml("a: &a {<<: *a, k: 1}\n", file="f")


def test_an_alias_that_stands_for_millions_costs_no_time() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    line = parse_yaml("\n".join(lines), file="f").line(("a59",))
    assert line == 60


def test_a_list_that_holds_itself_is_read_once() -> None:
    line = parse_yaml("a: &a [1, *a]\n", file="f").line(("a", 1, 1, 0))
    assert line == 1


class Small(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int


def test_a_schema_lists_everything_that_is_wrong() -> None:
    assert validate_yaml(Small, "count: 3", "f").count == 3
    with pytest.raises(ConfigurationError) as caught:
        validate_yaml(Small, "count: many\nmore: 1\n", "f")
    first, second = str(caught.value).splitlines()
    assert first.startswith("f:1: count: ")
    assert second == "f:2: more: is not a known field"


@pytest.mark.parametrize("scalars", BOTH)
@pytest.mark.parametrize("text", ["a: " + "[" * 25_000, "a: " + "{a: " * 25_000, "- " * 25_000, "[\n" * 25_000])
def test_what_is_nested_too_deeply_is_refused_where_it_ended_the_process(text: str, scalars: Scalars) -> None:
    with pytest.raises(ConfigurationError, match="are nested too deeply"):
        parse_yaml(text, file="f", scalars=scalars)


def test_a_long_file_is_not_a_deep_one() -> None:
    assert parse_yaml("a: [" + "{b: [1]}, " * 1_000 + "]", file="f", scalars="text").line(("a", 999, "b")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coutn: 1", "; did you mean `count`?"),
        ("inner: {wdith: 1}", "; did you mean `width`?"),
        ("many: {a: {wdith: 1}}", "; did you mean `width`?"),
        ("listed: [{wdith: 1}]", "; did you mean `width`?"),
        ("width: 1", "width: is not a known field; it belongs in `inner`"),
        ("inner: {listed: 1}", "inner.listed: is not a known field"),
        ("inner: {'width[0]': 1}", "; did you mean `width`?"),
    ],
)
def test_a_misspelt_field_is_told_which_is_meant(text: str, said: str) -> None:
    class Inner(Small):
        width: int = 1

    class Outer(Small):
        inner: Inner | None = None
        many: dict[str, Inner] = Field(default_factory=dict[str, Inner])
        listed: list[Inner] = Field(default_factory=list[Inner])

    with pytest.raises(ConfigurationError, match="is not a known field") as caught:
        validate_yaml(Outer, text, "f")
    assert next(line for line in str(caught.value).splitlines() if "not a known" in line).endswith(said)


class Named(BaseModel):
    name: str = Field(default="a", min_length=1, max_length=3)
    tags: list[str] = Field(default_factory=list[str], max_length=1)
    usd: float = Field(default=1, gt=0.5, le=1e8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: ''", "name: must not be empty"),
        ("name: abcd", "name: is too long: the maximum length is 3"),
        ("tags: [a, b]", "tags: has too many items: at most 1"),
        ("usd: 1e9", "usd: must be at most 100000000$"),
        ("usd: 0", "usd: must be above 0.5$"),
    ],
)
def test_what_is_too_long_or_too_much_is_told_the_bound(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        validate_yaml(Named, text, "f")


@pytest.mark.parametrize("scalars", BOTH)
def test_it_is_read_in_c(scalars: Scalars) -> None:
    """The C loader takes a tenth of the time, during which nobody else is served."""
    assert yaml.__with_libyaml__
    assert LOADERS[scalars] in (yaml.CSafeLoader, yaml.CBaseLoader)
