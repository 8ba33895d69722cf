"""Call arguments with a tag around each, as Qwen3-Coder writes them. The tags carry no types: those come from the
tool's schema. Knows no tokens and no grammar.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from local_engine.text.tool_marks import PARAMETER_CLOSE, PARAMETER_OPEN

Schema = Mapping[str, Any]
# Python's spellings.
OF_PYTHON: Final = {"True": True, "False": False, "None": None}
# Where a schema's alternatives are; of an allOf, mostly of one reference, each part says something about the value.
COMBINED: Final = ("anyOf", "oneOf", "allOf")


def write_tagged(arguments: Any) -> str:
    """Arguments by name; strings as they are, anything else as JSON."""
    named = cast(dict[str, Any], arguments) if isinstance(arguments, dict) else {}
    return "".join(
        f"{PARAMETER_OPEN}{name}>\n"
        f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n{PARAMETER_CLOSE}\n"
        for name, value in named.items()
    )


def read_tagged(text: str, schema: Any) -> str:
    """A JSON object of the arguments by name, each typed by `schema`, the schema of all of them."""
    properties = properties_of(schema)[0]
    arguments: dict[str, str] = {}
    for piece in text.split(PARAMETER_OPEN)[1:]:
        key, found, rest = piece.partition(">")
        if key and found:
            value = rest.partition(PARAMETER_CLOSE)[0].removeprefix("\n").removesuffix("\n")
            arguments[key.strip()] = _typed(value, properties.get(key.strip()), schema)
    return "{" + ", ".join(f"{_json(name)}: {value}" for name, value in arguments.items()) + "}"


def _typed(value: str, schema: Any, root: Any) -> str:
    """A value as JSON, typed by its schema: a string, unless the schema names only other types and the text is JSON of
    one, which stays as it is: read and written again, 1e999 would be Infinity."""
    kinds = [kind for part in parts_of(schema, root) for kind in _kinds_of(part)]
    if not isinstance(schema, dict) or ("string" in kinds and (value != "null" or "null" not in kinds)):
        return _json(value)
    try:
        json.loads(value, parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return _json(OF_PYTHON.get(value, value))
    return value.strip()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse(word: str) -> None:
    """NaN and infinities, which JSON lacks, are texts: no client could read the arguments."""
    raise ValueError(word)


def properties_of(schema: Any) -> tuple[dict[str, Any], list[Any]]:
    """The properties of an object by name, and which are required, also those behind references and in an allOf: the
    schema of a named type is often but a reference."""
    properties: dict[str, Any] = {}
    required: list[Any] = []
    for one in _objects_of(schema, schema, set()):
        if isinstance(known := one.get("properties"), dict):
            for name, value in cast(dict[str, Any], known).items():
                properties.setdefault(name, value)
        if isinstance(needed := one.get("required"), list):
            required += cast(list[Any], needed)
    return properties, required


def _objects_of(schema: Any, root: Any, seen: set[str]) -> Iterator[Schema]:
    if not isinstance(schema, dict):
        return
    one = cast(dict[str, Any], schema)
    yield one
    reference, several = one.get("$ref"), one.get("allOf")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        yield from _objects_of(_referred(reference, root), root, seen)
    for part in cast(list[Any], several) if isinstance(several, list) else []:
        yield from _objects_of(part, root, seen)


def takes_text(schema: Any, root: Any) -> bool:
    """Whether a value may be a string, which nothing then distinguishes from other types."""
    kinds = [_kinds_of(part) for part in parts_of(schema, root)]
    return not kinds or not all(kinds) or any("string" in some for some in kinds)


def texts_of(schema: Any, root: Any) -> list[str] | None:
    """The strings that a value must be one of; None if its schema lists none."""
    named = [one for part in parts_of(schema, root) for one in _named_by(part)]
    texts = ["null" if one is None else one for one in named if one is None or isinstance(one, str)]
    return texts if texts and len(texts) == len(named) else None


def _named_by(part: Schema) -> list[Any]:
    """The values that a schema lists, or a placeholder if it lists none."""
    if part.get("type") == "null":
        return [None]
    named = part.get("enum", [part["const"]] if "const" in part else [...])
    return cast(list[Any], named) if isinstance(named, list) else [...]


def parts_of(schema: Any, root: Any) -> list[Schema]:
    """The alternatives for a value, with references resolved."""
    return list(_parts_of(schema, root, set()))


def _parts_of(schema: Any, root: Any, seen: set[str]) -> Iterator[Schema]:
    if not isinstance(schema, dict):
        return
    one = cast(dict[str, Any], schema)
    reference, several = one.get("$ref"), next((one[name] for name in COMBINED if name in one), None)
    if isinstance(reference, str):
        parts = [] if reference in seen else [_referred(reference, root)]
        seen.add(reference)
    elif isinstance(several, list):
        parts = cast(list[Any], several)
    else:
        yield one
        return
    listed = {name: one[name] for name in ("enum", "const") if name in one}
    for part in parts:
        for found in _parts_of(part, root, seen):
            yield {"type": one.get("type"), **found, **listed}


def _referred(reference: str, root: Any) -> Any:
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = cast(dict[str, Any], found).get(name) if isinstance(found, dict) else None
    return found


def _kinds_of(part: Schema) -> list[Any]:
    if (kind := part.get("type")) is not None:
        return cast(list[Any], kind) if isinstance(kind, list) else [kind]
    named = part.get("enum", [part["const"]] if "const" in part else [])
    of = {str: "string", type(None): "null"}
    return [of.get(type(one), "other") for one in named] if isinstance(named, list) else []
