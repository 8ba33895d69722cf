"""Completions at a place in a YAML text, from its JSON schema. Pure; tolerant, because the text is unfinished.

It understands only the YAML that rules are written in: block maps and lists, flow maps and lists, comments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ANY = "*"
"""In a path: any item of a list, or any name in a map whose names are free."""
WORD = re.compile(r"[\w.:/@-]*$")
KEY = re.compile(r"(?P<key>[\w.:/@-]+|\"[^\"]*\")\s*:(?=\s|$)")
BLOCK_AGAIN = re.compile(r"(\s*- [\w.-]+:|[\w.-]+:)(\s|$)")
Path = tuple[str, ...]
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One suggestion; `insert` is the text that it inserts."""

    label: str
    insert: str
    detail: str
    kind: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cursor is: in a key of the map at `path`, or in the value at `path`; `word` is what is typed of it."""

    path: Path
    is_key: bool
    word: str


@dataclass(slots=True)
class _Flow:
    """An open bracket; `path` is that of its content."""

    path: Path
    is_map: bool
    key: str | None = None
    start: int = 0


@dataclass(slots=True)
class _Reader:
    """Reads lines and remembers which keys, items and brackets are open. A frame is (column, key or ANY)."""

    frames: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    flows: list[_Flow] = field(default_factory=list[_Flow])

    def path(self) -> Path:
        return tuple(name for _, name in self.frames)

    def read(self, line: str) -> Place:
        """Reads one line and returns the place at its end."""
        if self.flows and BLOCK_AGAIN.match(line):
            self.flows.clear()  # a bracket above was never closed
        if self.flows:
            return self._read_flow(line, 0)
        column = len(line) - len(line.lstrip(" "))
        if line[column:].startswith("#"):
            return Place((), is_key=False, word="")
        while re.match(r"-(\s|$)", line[column:]):
            while self.frames and (self.frames[-1][0] > column or self.frames[-1] == (column, ANY)):
                self.frames.pop()
            self.frames.append((column, ANY))
            column += 1 + len(line[column + 1 :]) - len(line[column + 1 :].lstrip(" "))
        rest = line[column:]
        if not rest and "-" not in line:
            below = [frame for frame in self.frames if frame[0] < column or (frame[0] == column and frame[1] == ANY)]
            return Place(tuple(name for _, name in below), is_key=True, word="")
        while self.frames and self.frames[-1][0] >= column:
            self.frames.pop()
        if (key := KEY.match(rest)) is None:
            if rest[:1] in ("{", "["):
                return self._read_flow(line, column)
            return Place(self.path(), is_key=True, word=_word(rest))
        self.frames.append((column, key["key"].strip('"')))
        after = column + key.end()
        value = line[after:].lstrip(" ")
        if " #" in f" {value}":
            return Place((), is_key=False, word="")
        if value[:1] in ("{", "["):
            return self._read_flow(line, len(line) - len(value))
        return Place(self.path(), is_key=False, word=_word(value))

    def _read_flow(self, line: str, at: int) -> Place:
        start = at
        while at < len(line):
            sign, top = line[at], self.flows[-1] if self.flows else None
            if sign in "{[":
                path = _inside(top) if top is not None else self.path()
                self.flows.append(_Flow(path if sign == "{" else (*path, ANY), is_map=sign == "{"))
                start = at + 1
            elif top is None:
                break
            elif sign in "}]":
                self.flows.pop()
                start = at + 1
            elif sign == ",":
                top.key, start = None, at + 1
            elif sign == ":" and top.is_map and top.key is None and (at + 1 == len(line) or line[at + 1] == " "):
                top.key, start = line[start:at].strip().strip('"'), at + 1
            elif sign == "#" and line[at - 1 : at] in (" ", ""):
                return Place((), is_key=False, word="")
            at += 1
        if not self.flows:
            return Place((), is_key=False, word="")
        top = self.flows[-1]
        return Place(_inside(top), is_key=top.is_map and top.key is None, word=_word(line[start:]))


def place_of(before: str) -> Place:
    """The place at the end of a text: everything before the cursor."""
    reader = _Reader()
    *complete, last = before.split("\n")
    for line in complete:
        if line.strip():
            reader.read(line.rstrip())
    return reader.read(last)


def complete(before: str, schema: Schema, names: Mapping[Path, Sequence[str]]) -> tuple[str, list[Option]]:
    """The partial word before the cursor, and its completions. `names` are known values of some paths."""
    place = place_of(before)
    parts = list(_at(schema, schema, place.path))
    options: dict[str, Option] = {}
    for part in parts:
        found = _keys(schema, part) if place.is_key else _values(part)
        options |= {one.label: one for one in found}
    if place.is_key and not options:  # a list's item, or a map that takes any name
        options = {one.label: one for part in parts for one in _values(part)}
    for path, known in names.items():
        if _fits(place.path, path):
            options |= {name: Option(name, name, "configured here", "constant") for name in known}
    return place.word, [one for one in options.values() if one.label.startswith(place.word)]


def _fits(path: Path, pattern: Path) -> bool:
    return len(path) == len(pattern) and all(want in (ANY, have) for have, want in zip(path, pattern, strict=True))


def resolve(schema: Schema, part: Schema) -> Iterator[Schema]:
    """Every alternative of a part of the schema, except null."""
    if "$ref" in part:
        yield from resolve(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    elif "anyOf" in part:
        for one in part["anyOf"]:
            yield from resolve(schema, one)
    elif part.get("type") != "null":
        yield part


def _at(schema: Schema, part: Schema, path: Path) -> Iterator[Schema]:
    for one in resolve(schema, part):
        if not path:
            yield one
        elif path[0] == ANY:
            yield from _at(schema, one.get("items", {}), path[1:])
        elif path[0] in one.get("properties", {}):
            yield from _at(schema, one["properties"][path[0]], path[1:])
        else:
            for other in (one.get("additionalProperties"), *one.get("patternProperties", {}).values()):
                if isinstance(other, dict):
                    yield from _at(schema, other, path[1:])


def _keys(schema: Schema, part: Schema) -> Iterator[Option]:
    required = part.get("required", ())
    for name, value in part.get("properties", {}).items():
        detail = " or ".join(dict.fromkeys(describe(schema, one) for one in resolve(schema, value)))
        yield Option(name, f"{name}: ", f"{detail}, required" if name in required else detail, "property")


def _values(part: Schema) -> Iterator[Option]:
    if part.get("type") == "array":
        yield from _values(part.get("items", {}))
    for value in part.get("enum", (part["const"],) if "const" in part else ()):
        yield Option(str(value), str(value), "", "enum")


def describe(schema: Schema, part: Schema) -> str:
    """The type of a value in a few words."""
    if choices := part.get("enum"):
        return "one of " + ", ".join(str(one) for one in choices)
    if "const" in part:
        return str(part["const"])
    if part.get("type") == "array":
        inside = [describe(schema, one) for one in resolve(schema, part.get("items", {}))]
        return "list of " + " or ".join(inside).removeprefix("one of ")
    if part.get("type") == "object":
        return "; ".join(part["properties"]) if "properties" in part else "a map"
    low, high = part.get("minimum", part.get("exclusiveMinimum")), part.get("maximum")
    kind = {"number": "number", "integer": "whole number", "string": "text"}.get(str(part.get("type")), "value")
    if low is not None and high is not None:
        return f"{kind} from {low} to {high}"
    return f"{kind} above {low}" if low is not None else kind


def _inside(flow: _Flow) -> Path:
    return (*flow.path, flow.key) if flow.is_map and flow.key is not None else flow.path


def _word(text: str) -> str:
    found = WORD.search(text)
    return found[0] if found else ""
