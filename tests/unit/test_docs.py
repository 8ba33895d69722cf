"""What README.md and docs/ tell people to type or to write exists: commands, options, configuration, files, modules."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import typer
import typer.main
from pydantic import BaseModel

from gateway.cli import COMMANDS, build
from gateway.config.settings import Settings
from gateway.from_litellm.config_file import parse_fields, read_config
from gateway.pricing.price_text import parse_overrides, parse_prices
from gateway.routing.rules_text import parse_rules
from gateway.yaml_document import parse_yaml, validate_yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
WRITTEN = sorted([*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "docs" / "decisions").glob("*.md")])
"""With those that tell what was decided or done, whose links lead somewhere too."""

INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r"^(?: {4}|\$ )?(breakeven [a-z].*|python -m .*)$", re.MULTILINE)
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
FILE = re.compile(r"(?:[\w-]+/)+[\w.-]+\.(?:py|md|yaml|yml|json|png|cpp)")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NAME = re.compile(r"\bbreakeven_[a-z_]+|\bBREAKEVEN_[A-Z_]+|\bx-breakeven-[a-z-]+")
MEASURES = re.compile(r"^breakeven_(?:engine_|ledger_)?|_(?:total|bucket|count|sum)$")
"""What the names of metrics have around those that the source writes."""

MADE_BY_RUNNING = ("benchmarks/results/", "dist/", ".breakeven/")
SOURCES = ("", "gateway", "docs", "local_engine", "classifier", "tests")
"""Rooms whose own page or table names files without saying the room."""


def ids(page: Path) -> str:
    return page.stem


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def whole_lines(page: Path) -> Iterator[str]:
    """Every command line that stands by itself."""
    text = text_of(page)
    fences = "\n".join(found[1] for found in FENCED.findall(text))
    for line in [*COMMAND_LINE.findall(FENCED.sub("", text)), *COMMAND_LINE.findall(fences)]:
        yield line.partition(" #")[0].strip()


def typed(page: Path) -> Iterator[str]:
    """Every command line of a page, whole or mentioned."""
    yield from whole_lines(page)
    mentioned = INLINE.findall(text_of(page))
    yield from (code for code in mentioned if code.startswith(("breakeven ", "python -m ", "make ")))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words begin with, None where there is none, and the words that are left to it."""
    if not any(words[0] in commands for commands in COMMANDS.values()):
        return None, words
    here = cast("Any", typer.main.get_command(build(words[0])))
    for at, word in enumerate(words):
        inner = getattr(here, "commands", None)
        if inner is None or not re.fullmatch(r"[a-z][a-z-]*", word):
            return here, words[at:]
        if word not in inner:
            return None, words
        here = inner[word]
    return here, []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_option_exists(page: Path) -> None:
    wrong: list[str] = []
    for line in typed(page):
        program, *words = line.split()
        if program != "breakeven" or words[0].startswith("-"):
            continue
        command, _ = command_of(words)
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} if command else set()
        if command is None or not known.issuperset(OPTION.findall(line)):
            wrong.append(line)
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_line_can_be_typed_as_it_stands(page: Path) -> None:
    """With each argument that the command wants, and no value that it refuses."""
    wrong: list[str] = []
    for line in whole_lines(page):
        program, *words = shlex.split(line)
        if program == "breakeven":
            command, rest = command_of(words)
            try:
                command.make_context(words[0], rest)
            except typer.BadParameter as error:
                wrong.append(f"{line}: {error.format_message()}")
    assert not wrong


def test_every_variable_metric_and_header_that_is_named_exists() -> None:
    rooms = [ROOT / room for room in ("gateway", "backends", "local_engine", "dashboards", "tests", "deploy")]
    files = (file for room in rooms for ending in ("py", "yaml") for file in room.rglob(f"*.{ending}"))
    known = "\n".join(text_of(file) for file in files if file != Path(__file__))
    named = {name for page in WRITTEN for name in NAME.findall(FENCED.sub("", text_of(page)))}
    assert not [name for name in named if name not in known and MEASURES.sub("", name) not in known]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_and_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    wrong: list[str] = []
    for line in typed(page):
        words = line.split()
        if words[0] == "python" and re.fullmatch(r"[a-z_.]+", words[2]):
            wrong += [] if find_spec(words[2]) else [line]
        elif words[0] == "make" and words[1].isalpha():
            wrong += [] if words[1] in targets else [line]
    assert not wrong


@pytest.mark.parametrize("page", WRITTEN, ids=ids)
def test_every_file_and_picture_that_is_named_exists(page: Path) -> None:
    text = FENCED.sub("", text_of(page))
    named = [path for code in INLINE.findall(text) for path in FILE.findall(code) if code.startswith(path)]
    links = [path for path in LINK.findall(text) if not (page.parent / path).exists()]
    wrong = [
        path
        for path in named
        if not path.startswith(MADE_BY_RUNNING) and not any((ROOT / room / path).exists() for room in SOURCES)
    ]
    assert not wrong + links


def test_every_page_is_found_from_the_readme() -> None:
    decisions = ROOT / "docs" / "decisions" / "README.md"
    linked = {
        (page.parent / path).resolve()
        for page in (ROOT / "README.md", ROOT / "docs" / "classifier.md", decisions)
        for path in LINK.findall(text_of(page))
    }
    lost = [page.name for page in WRITTEN if page.resolve() not in linked and page.name != "README.md"]
    assert not lost, "name a page in README.md, a decision in docs/decisions/README.md"
    assert decisions in linked


def anchors_of(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", text_of(page)))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=ids)
def test_every_heading_that_is_linked_exists(page: Path) -> None:
    links = ANCHOR.findall(FENCED.sub("", text_of(page)))
    assert not [
        f"{path}#{anchor}" for path, anchor in links if anchor not in anchors_of(page.parent / path if path else page)
    ]


def settings_and_rules(page: Path) -> Iterator[str]:
    """The YAML of a page, and one-line settings in its sentences."""
    text = text_of(page)
    yield from (body for language, body in FENCED.findall(text) if language == "yaml")
    for code in INLINE.findall(text):
        field, separator, rest = code.partition(": ")
        if field in Settings.model_fields and separator and rest[:1] in "[{":
            yield code


def check_yaml(text: str, name: str) -> None:
    """By what it is, told from its first words; a part of a rule is made a whole one."""
    first = next(iter(re.findall(r"^\s*-? ?(\w+):", text, re.MULTILINE)), "")
    if first in Settings.model_fields:
        validate_yaml(Settings, text, name)
    elif first == "model_list":
        read_config(parse_fields(text, file=name), file=name)
    elif first == "provider":
        parse_prices(text, name)
    elif first == "overrides":
        parse_overrides(text, name)
    else:
        whole = text if first == "version" else f"version: 1\nrules:\n{_as_rules(text, first)}"
        known = set(re.findall(r"[a-z][\w.-]+", text))
        parse_rules(whole, file=name, known_models=frozenset(known))


def _as_rules(text: str, first: str) -> str:
    rule = f"  - name: example\n{text}" if first == "choose" else text
    is_last = "when:" not in rule
    return rule if is_last else f"{rule.rstrip()}\n  - name: default\n    choose: {{from: any}}\n"


def fields_of(kind: object) -> Iterator[str]:
    """The names of a model's fields, and of the fields of models within its types."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield name
            yield from fields_of(field.annotation)
    for inner in get_args(kind):
        yield from fields_of(inner)


def test_every_setting_is_told_of() -> None:
    told = set(re.findall(r"\w+", " ".join(text_of(page) for page in PAGES)))
    assert not set(fields_of(Settings)) - told


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_configuration_is_valid(page: Path) -> None:
    for text in settings_and_rules(page):
        if "..." in text:
            parse_yaml(text, file=page.name)
        else:
            check_yaml(text, page.name)


def test_the_checks_see_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`breakeven costs --bye model` `breakeven nothing` `make nothing` `python -m benchmarks.nothing`\n"
        "`gateway/nothing.py` [page](nothing.md) [heading](#nothing)\n\n"
        "    breakeven rules diff\n\n```yaml\nserver: {prot: 1}\n```\n"
    )
    for check in (
        test_every_command_and_option_exists,
        test_every_command_line_can_be_typed_as_it_stands,
        test_every_module_and_make_target_exists,
        test_every_file_and_picture_that_is_named_exists,
        test_every_heading_that_is_linked_exists,
    ):
        with pytest.raises(AssertionError):
            check(page)
    with pytest.raises(Exception, match=r"server\.prot: is not a known field"):
        test_every_configuration_is_valid(page)
