"""YAML text to plain values, keeping the line of every key and item so that an error can name it."""

from collections.abc import Sequence
from typing import cast

import yaml

from gateway.errors import ConfigurationError

MAX_BYTES = 1_000_000
Path = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys: the second would silently win."""


def _no_duplicates(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
        seen.add(key)
    return cast("dict[object, object]", loader.construct_mapping(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_duplicates)


def parse_yaml(text: str, *, file: str) -> tuple[object, dict[Path, int]]:
    """The document and the 1-based line of each path in it. Raises ConfigurationError naming file and line."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigurationError(f"is larger than {MAX_BYTES:,} bytes", file=file)
    try:
        node, document = _load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigurationError(
            f"not valid YAML: {error.problem or error.context}", file=file, line=mark.line + 1 if mark else None
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(f"has the character {error.character!r}", file=file, line=line) from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, KeyError) as error:
        # A date that does not exist, a key that is a list: the loader says it in Python's own words.
        raise ConfigurationError(f"not valid YAML: {error or type(error).__name__}", file=file) from error
    if node is None:
        raise ConfigurationError("is empty", file=file)
    lines: dict[Path, int] = {}
    _walk(node, (), lines)
    return document, lines


def _load(text: str) -> tuple[yaml.Node | None, object]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines)


def nearest_line(lines: dict[Path, int], path: Sequence[str | int]) -> int | None:
    """The line of the longest prefix of `path` that the document has."""
    for length in range(len(path), -1, -1):
        if (line := lines.get(tuple(path[:length]))) is not None:
            return line
    return None
