"""YAML text to plain values that remember their position, so that errors can name file, line and field. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import ConfigurationError

Path = Sequence[str | int]
Schema = TypeVar("Schema", bound=BaseModel)
LOADERS = {
    # The C loader is ten times faster: a megabyte of rules, which any viewer may have checked, took a minute of CPU.
    "typed": getattr(yaml, "CSafeLoader", yaml.SafeLoader),
    # Scalars stay text, so that no number becomes a float; price files have thousands of lines.
    "text": getattr(yaml, "CBaseLoader", yaml.BaseLoader),
}
DEEPEST = 1000
MERGE = "tag:yaml.org,2002:merge"
NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
LONGEST_NUMBER = 1000
"""In characters. The loader takes minutes for a megabyte of `1:00:00...`, which it reads to the base of 60."""
MOST_MERGED = 10_000
"""Limit on the fields of all mappings that merge others, added up."""
TOO_DEEP = "fields are nested too deeply; is a bracket or an indentation wrong?"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,119}$"
NO_NAME = "must begin with a letter or a digit and have only letters, digits and . _ : / @ - (no blanks, 120 at most)"
LABEL_PATTERN = r"^[\w.:/@-]+( +[\w.:/@-]+)*$"
PATTERNS = {
    NAME_PATTERN: NO_NAME,
    LABEL_PATTERN: "may have only letters, digits and . _ : / @ -, with blanks between them",
}
PLAIN_NUMBER = "must be a number, without a unit or a currency"
PROBLEMS = {
    "extra_forbidden": "is not a known field",
    "missing": "is missing",
    "int_parsing": "must be a whole number, without a unit",
    "int_from_float": "must be a whole number",
    "float_parsing": PLAIN_NUMBER,
    "finite_number": "must be a finite number",
    "decimal_parsing": PLAIN_NUMBER,
    "bool_parsing": "must be true or false",
    "dict_type": "must be named fields, each as `name: value`",
    "model_type": "must be named fields, each as `name: value`",
    "list_type": "must be a list, as in [one, two]",
    "tuple_type": "must be a list, as in [one, two]",
    "string_type": "must be text",
    "string_too_short": "is too short: the minimum length is {min_length}",
    "string_too_long": "is too long: the maximum length is {max_length}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "too_short": "has too few items: at least {min_length}",
    "too_long": "has too many items: at most {max_length}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
}
"""pydantic's error types, worded for someone who edits a file."""
OTHER_KIND = frozenset({"list_type", "literal_error"})
"""Errors from the alternative of a word-or-list field that was not meant."""
YAML_PROBLEMS = {
    "mapping values are not allowed": "; is the line, or the one above it, indented as it should be?",
    "cannot start any token": "; indent with spaces, not tabs, and put text that begins with a sign into quotes",
    "found a tab character": "; indent with spaces",
    "expected <block end>": "; is the line indented like the ones it belongs to?",
    "did not find expected key": "; is the line indented like the ones it belongs to?",
    "could not find expected ':'": "; is a colon missing in the line above?",
    "unexpected end of stream": "; is the quote that begins here closed?",
}


@dataclass(frozen=True, slots=True)
class Document:
    """What a text says, and the tree that it was parsed from."""

    value: object = field(repr=False)  # aliases can make either endless
    node: yaml.Node = field(repr=False)

    def line(self, path: Path) -> int:
        """The 1-based line of the deepest existing part of `path`; for a mapping entry, the line of its key."""
        node, line = self.node, self.node.start_mark.line + 1
        for part in path:
            found = next((one for one in children(node) if one[0] == str(part)), None)
            if found is None:
                break
            line, node = found[1].start_mark.line + 1, found[2]
        return line


def parse_yaml(text: str, *, file: str, scalars: Literal["typed", "text"] = "typed") -> Document:
    """Raises ConfigurationError with file and line for bad YAML, an empty document, or a duplicate key."""
    try:
        node, twice, value = _load(text, LOADERS[scalars])
    except yaml.MarkedYAMLError as error:
        mark, began = error.problem_mark or error.context_mark, error.context_mark
        said, inside = error.problem or error.context or "", error.context or ""
        hint = next((hint for part, hint in YAML_PROBLEMS.items() if part in said), "")
        if mark and began and "quoted" in inside and "end of stream" in said:
            mark = began  # otherwise it would be the text's last line
        elif mark and began and "flow" in inside and began.line < mark.line:
            hint = f"; is the bracket that opens in line {began.line + 1} closed?"
        raise ConfigurationError(
            f"not valid YAML: {said}{hint}", file=file, line=mark.line + 1 if mark else None
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(0, text.find(chr(error.character)))) + 1
        problem = f"has the invalid character {chr(error.character)!r}"
        raise ConfigurationError(problem, file=file, line=line) from error
    except RecursionError as error:
        raise ConfigurationError(TOO_DEEP, file=file) from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # A date that does not exist, a list as a key, `!!int ''`: the loader raises plain Python errors.
        raise ConfigurationError(f"not valid YAML: {error or type(error).__name__}", file=file) from error
    if node is None:
        raise ConfigurationError("is empty", file=file, line=1)
    if twice:
        first, second = (key.start_mark.line + 1 for key in twice)
        problem = f"is given twice, first in line {first}: keep one of the two"
        raise ConfigurationError(problem, file=file, line=second, field=str(twice[1].value))
    return Document(value, node)


def validate_yaml(schema: type[Schema], text: str, name: str) -> Schema:
    """Parses the text as `schema`; `name` is the file in errors. Raises ConfigurationError with every problem found."""
    document = parse_yaml(text, file=name, scalars="text")
    try:
        return schema.model_validate(document.value)
    except ValidationError as error:
        wrong = [
            ConfigurationError(
                problem_of(found) + meant(found, schema),
                file=name,
                line=document.line(found["loc"]),
                field=field_of(found["loc"]) or "file",
            )
            for found in error.errors()
        ]
        more = "".join(f"\n{each}" for each in wrong[1:])
        first = wrong[0]
        raise ConfigurationError(first.problem + more, file=name, line=first.line, field=first.field) from error


def problem_of(found: ErrorDetails) -> str:
    """What is wrong with a field, in pydantic's words if ours has none."""
    if found["type"] == "string_pattern_mismatch" and (said := PATTERNS.get(found.get("ctx", {}).get("pattern", ""))):
        return said
    if found["type"] == "string_too_short" and found.get("ctx", {}).get("min_length") == 1:
        return "must not be empty"
    if (known := PROBLEMS.get(found["type"])) is None:
        return found["msg"].removeprefix("Value error, ")
    return known.format(**{name: _as_written(value) for name, value in found.get("ctx", {}).items()})


def _as_written(value: object) -> object:
    """A whole number without a decimal point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def meant(found: ErrorDetails, schema: type[BaseModel]) -> str:
    """For an unknown field, suggests a similarly spelled one, or the section that it belongs in."""
    if found["type"] != "extra_forbidden":
        return ""
    place, name = path_of(found["loc"][:-1]), found["loc"][-1]
    whole = schema.model_json_schema()
    here = _fields_at(whole, whole, place)
    if close := get_close_matches(str(name), here, n=1):
        return f"; did you mean `{close[0]}`?"
    homes = [field for field, part in whole["properties"].items() if str(name) in _fields_at(whole, part, ())]
    return f"; it belongs in `{homes[0]}`" if homes and list(place) != homes[:1] else ""


def _fields_at(whole: dict[str, Any], part: dict[str, Any], place: Path) -> set[str]:
    """Field names at `place` below a part of a JSON schema; the union where there are alternatives."""
    waiting, found = [(part, tuple(place))], set[str]()
    while waiting:
        node, left = waiting.pop()
        waiting += [(one, left) for one in node.get("anyOf", ())]
        if reference := node.get("$ref"):
            waiting.append((whole["$defs"][reference.rpartition("/")[2]], left))
        fields = node.get("properties", {})
        if not left:
            found.update(fields)
            continue
        inner = (fields.get(str(left[0])), node.get("additionalProperties"), node.get("items"))
        waiting += [(one, left[1:]) for one in inner if isinstance(one, dict)]
    return found


def problem_among(found: Sequence[ErrorDetails], first: ErrorDetails) -> str:
    """What is wrong at the location of `first`; for a field with alternatives, only what concerns the one that was
    meant."""
    path = path_of(first["loc"])
    here = [one for one in found if path_of(one["loc"]) == path]
    if any(one["type"] not in OTHER_KIND for one in here):
        here = [one for one in here if one["type"] not in OTHER_KIND]
    return ", or ".join(dict.fromkeys(problem_of(one) for one in here))


def path_of(location: Path) -> Path:
    """Location of an error, without the names pydantic inserts for alternatives, such as `list[str]`."""
    return tuple(part for part in location if "[" not in str(part))


def field_of(path: Path) -> str:
    return ".".join(str(part) for part in path_of(path))


def children(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Name, key node and value node of each item of a mapping or sequence."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), key, value
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield str(index), value, value


def duplicates(root: yaml.Node) -> Iterator[tuple[Any, Any]]:
    """Keys that occur twice in a mapping, the first and the second; YAML would silently keep the last."""
    for node in _nodes(root):
        names: dict[str, Any] = {}
        for name, key, _ in children(node) if isinstance(node, yaml.MappingNode) else ():
            if name in names:
                yield names[name], key
            names[name] = key


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Each node once: an alias may be its own ancestor, or expand to millions."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += [value for _, _, value in children(node)]


def _load(text: str, kind: Any) -> tuple[yaml.Node | None, tuple[Any, Any] | None, object]:
    """The tree, a duplicate key if any, and the value. Checked first, as the loader writes merged fields into the
    tree."""
    if _depth_bound(text) > DEEPEST:
        _require_shallow(text, kind)
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None, None
        twice = next(duplicates(node), None)
        _require_few_merged(node)
        if any(one.tag in NUMBERS and len(one.value) > LONGEST_NUMBER for one in _nodes(node)):
            raise ValueError(f"a number has more than {LONGEST_NUMBER:,} characters")
        return node, twice, loader.construct_document(node)
    finally:
        loader.dispose()


def _require_few_merged(root: yaml.Node) -> None:
    """Raises ValueError. Nested merges grow exponentially: a mapping can merge another twice, which merges a third
    twice."""
    sizes: dict[int, int] = {}
    mappings = [node for node in _nodes(root) if isinstance(node, yaml.MappingNode) and _merges(node)]
    if sum(_merged(node, sizes) for node in mappings) > MOST_MERGED:
        raise ValueError(f"merged mappings (<<) add up to more than {MOST_MERGED:,} fields")


def _merges(node: yaml.MappingNode) -> bool:
    return any(key.tag == MERGE for key, _ in node.value)


def _merged(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Number of fields including merged ones. Raises RecursionError for a mapping that merges itself."""
    if id(node) not in sizes:
        if isinstance(node, yaml.MappingNode):
            size = sum(_merged(value, sizes) if key.tag == MERGE else 1 for key, value in node.value)
        else:
            size = sum(_merged(one, sizes) for one in node.value if isinstance(one, yaml.Node))
        sizes[id(node)] = size
    return sizes[id(node)]


def _depth_bound(text: str) -> int:
    """An upper bound on nesting depth: each level takes a bracket, or one more column of a line."""
    return text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0)


def _require_shallow(text: str, kind: Any) -> None:
    """Raises RecursionError for depths at which the C loader would overflow its stack and crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError
