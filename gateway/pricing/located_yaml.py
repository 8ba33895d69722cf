"""YAML to a pydantic schema, with errors that say file, line and field. Scalars stay text, so no number is a float."""

from collections.abc import Iterator
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gateway.errors import ConfigurationError

Schema = TypeVar("Schema", bound=BaseModel)
Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def validate_yaml(schema: type[Schema], text: str, name: str) -> Schema:
    """The text as `schema`; `name` is what errors call it. Raises ConfigurationError, a duplicate key included."""
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        value: object = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigurationError(str(error.problem or error.context), file=name, line=line) from error
    if node is None:
        raise ConfigurationError("the file is empty", file=name, line=1)
    if twice := next(duplicates(node), None):
        raise ConfigurationError("given twice", file=name, line=twice.start_mark.line + 1, field=twice.value)
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        wrong = [
            ConfigurationError(found["msg"], file=name, line=line_of(node, found["loc"]), field=field(found["loc"]))
            for found in error.errors()
        ]
        more = "".join(f"\n{each}" for each in wrong[1:])
        first = wrong[0]
        raise ConfigurationError(first.problem + more, file=name, line=first.line, field=first.field) from error


def field(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "file"


def duplicates(node: Any) -> Iterator[Any]:
    """Keys that a mapping holds twice; YAML would silently keep the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key
            seen.add(key.value)
            yield from duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from duplicates(value)


def line_of(node: Any, location: tuple[int | str, ...]) -> int:
    """The line of the deepest part of `location` that the text has."""
    line: int = node.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line
