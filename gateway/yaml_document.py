"""YAML text to plain values that remember where they stood, so that an error can say file, line and field. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gateway.errors import ConfigurationError

Path = Sequence[str | int]
Schema = TypeVar("Schema", bound=BaseModel)
LOADERS = {
    "typed": yaml.SafeLoader,
    # Scalars stay text, so that no number is a float; in C, because price files have thousands of lines.
    "text": getattr(yaml, "CBaseLoader", yaml.BaseLoader),
}


@dataclass(frozen=True, slots=True)
class Document:
    """What a text says, and the tree that it was read from."""

    value: object = field(repr=False)  # aliases can make either endless
    node: yaml.Node = field(repr=False)

    def line(self, path: Path) -> int:
        """The 1-based line of the deepest part of `path` that the text has; of a key, where the key stands."""
        node, line = self.node, self.node.start_mark.line + 1
        for part in path:
            found = next((one for one in children(node) if one[0] == str(part)), None)
            if found is None:
                break
            line, node = found[1].start_mark.line + 1, found[2]
        return line


def parse_yaml(text: str, *, file: str, scalars: Literal["typed", "text"] = "typed") -> Document:
    """Raises ConfigurationError naming file and line: bad YAML, nothing at all, or a key that stands twice."""
    try:
        node, value = _load(text, LOADERS[scalars])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigurationError(
            f"not valid YAML: {error.problem or error.context}", file=file, line=mark.line + 1 if mark else None
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(0, text.find(chr(error.character)))) + 1
        raise ConfigurationError(f"has the character {chr(error.character)!r}", file=file, line=line) from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, KeyError) as error:
        # A date that does not exist, a key that is a list: the loader says it in Python's own words.
        raise ConfigurationError(f"not valid YAML: {error or type(error).__name__}", file=file) from error
    if node is None:
        raise ConfigurationError("is empty", file=file, line=1)
    if twice := next(duplicates(node), None):
        raise ConfigurationError("stands twice", file=file, line=twice.start_mark.line + 1, field=str(twice.value))
    return Document(value, node)


def validate_yaml(schema: type[Schema], text: str, name: str) -> Schema:
    """The text as `schema`; `name` is what errors call it. Raises ConfigurationError, listing everything wrong."""
    document = parse_yaml(text, file=name, scalars="text")
    try:
        return schema.model_validate(document.value)
    except ValidationError as error:
        wrong = [
            ConfigurationError(
                _said(found["type"], found["msg"]),
                file=name,
                line=document.line(found["loc"]),
                field=field_of(found["loc"]) or "file",
            )
            for found in error.errors()
        ]
        more = "".join(f"\n{each}" for each in wrong[1:])
        first = wrong[0]
        raise ConfigurationError(first.problem + more, file=name, line=first.line, field=first.field) from error


def _said(kind: str, message: str) -> str:
    """Pydantic's words, where they say it well."""
    return {"extra_forbidden": "is not a known field", "missing": "is missing"}.get(kind, message)


def field_of(path: Path) -> str:
    return ".".join(str(part) for part in path)


def children(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Name, where it stands, and value of each part of a mapping or sequence."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), key, value
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield str(index), value, value


def duplicates(root: yaml.Node) -> Iterator[Any]:
    """Keys that a mapping holds twice; YAML would silently keep the last. Each node once: an alias may be its own
    ancestor, or stand for millions."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        names: set[str] = set()
        for name, key, value in children(node):
            if isinstance(node, yaml.MappingNode):
                if name in names:
                    yield key
                names.add(name)
            waiting.append(value)


def _load(text: str, kind: Any) -> tuple[yaml.Node | None, object]:
    loader = kind(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
