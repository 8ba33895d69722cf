"""Reduces a JSON schema to the subset a provider supports: Anthropic answers 400 to anything else, OpenAI to a schema
that is not `strict` in its sense, or leaves out what OpenAI wants said. Pure.

Objects become closed, so that whatever they accept the original accepts too. Constraints that cannot be expressed (a
minimum, a maximum length) move into the description, where the model reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

from backends.formats.json_objects import Fields, objects_of, part_of, text_of

_KEPT: Final = ("type", "const", "title", "description", "required", "default")
_LISTS: Final[Mapping[str, str]] = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_DEFINITIONS: Final = ("$defs", "definitions")
_NAMED: Final = ("properties", *_DEFINITIONS)
_INNER: Final = ("items", "additionalProperties")
_SAID_TO_NOBODY: Final = frozenset({"$schema", "$id", "$comment", "additionalProperties", *_DEFINITIONS})
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)


class OpenObject(ValueError):
    """The schema has an object with arbitrary members, which would always be empty if it were closed."""


def for_anthropic(schema: Fields, *, is_root: bool = True) -> Fields:
    """The schema as Anthropic's structured outputs and strict tools take it. Only the root may be an object without
    members: a tool without parameters. Raises OpenObject, and RecursionError for a schema nested too deeply."""
    said = {name: _schemas(schema[name]) for name in _DEFINITIONS if isinstance(schema.get(name), dict)}
    if "$ref" in schema:
        return said | {"$ref": schema["$ref"]}
    made: Fields = said | {name: schema[name] for name in _KEPT if name in schema}
    for name, theirs in _LISTS.items():
        if name in schema:
            made[theirs] = [for_anthropic(one, is_root=False) for one in objects_of(schema[name])]
    if _is_object(schema):
        properties = schema.get("properties")
        if not properties and not (is_root and not schema.get("additionalProperties")):
            raise OpenObject("an object of any members")
        made |= {"properties": _schemas(properties), "additionalProperties": False}
    if isinstance(schema.get("items"), dict):
        made["items"] = for_anthropic(cast(Fields, schema["items"]), is_root=False)
    if schema.get("minItems") in (0, 1):
        made["minItems"] = schema["minItems"]
    if text_of(schema, "format") in _FORMATS:
        made["format"] = schema["format"]
    values = schema.get("enum")
    if isinstance(values, list) and not any(isinstance(one, dict | list) for one in cast(list[object], values)):
        made["enum"] = values
    return _described(made, schema)


def is_any_object(schema: Fields) -> bool:
    """Whether the schema asks for an object and constrains it no further."""
    said = schema.keys() - _SAID_TO_NOBODY - {"title", "description", "properties"}
    return said == {"type"} and schema["type"] == "object" and not schema.get("properties") and _is_open(schema)


def _is_open(schema: Fields) -> bool:
    return schema.get("additionalProperties", True) in (True, {})


def _schemas(properties: object) -> Fields:
    named = cast(Fields, properties) if isinstance(properties, dict) else {}
    return {
        name: for_anthropic(cast(Fields, one), is_root=False) if isinstance(one, dict) else one
        for name, one in named.items()
    }


def _described(made: Fields, schema: Fields) -> Fields:
    left = {name: one for name, one in schema.items() if name not in made and name not in _SAID_TO_NOBODY}
    for name in _LISTS:
        left.pop(name, None)
    if not left:
        return made
    text = ", ".join(f"{name}: {msgspec.json.encode(one).decode()}" for name, one in left.items())
    said = made.get("description")
    return made | {"description": f"{said}\n\n{{{text}}}" if isinstance(said, str) and said else f"{{{text}}}"}


def as_one_object(parameters: Fields) -> Fields:
    """A function's parameters as an object without alternatives at its root, where Anthropic takes none: it has the
    members of all of them, and a sentence on which belong together. What is inside an alternative stays."""
    root = _resolved(parameters, parameters)
    if _LISTS.keys().isdisjoint(root):
        return {"type": "object"} | root
    own = {name: one for name, one in root.items() if name not in _LISTS}
    parts, needed, said = [own], _required(own), [text_of(own, "description")]
    for name in _LISTS:
        once = {str(one.get("$ref", place)): one for place, one in enumerate(objects_of(root.get(name)))}
        if ways := [_resolved(one, parameters) for one in once.values()]:
            parts += ways
            needed |= (set.union if name == "allOf" else set.intersection)(*map(_required, ways))
            said += [] if name == "allOf" else [_belonging_together(ways)]
    members: dict[str, dict[bytes, object]] = {}
    for name, member in (item for one in parts for item in part_of(one, "properties").items()):
        members.setdefault(name, {})[msgspec.json.encode(member)] = member
    properties = {
        name: next(iter(found.values())) if len(found) == 1 else {"anyOf": list(found.values())}
        for name, found in members.items()
    }
    required = [name for name in properties if name in needed]
    optional: Fields = {"required": required, "description": "\n\n".join(filter(None, said))}
    return {"type": "object"} | own | {"properties": properties} | {k: v for k, v in optional.items() if v}


def _resolved(schema: Fields, root: Fields) -> Fields:
    """With the definition that it refers to in place of the reference, if that is one of the root's."""
    reference = text_of(schema, "$ref") or ""
    place, _, name = reference.removeprefix("#/").partition("/")
    found = part_of(root, place).get(name) if place in _DEFINITIONS else None
    if not isinstance(found, dict):
        return schema
    return cast(Fields, found) | {name: one for name, one in schema.items() if name != "$ref"}


def _required(schema: Fields) -> set[str]:
    names = schema.get("required")
    return {one for one in cast(list[object], names) if isinstance(one, str)} if isinstance(names, list) else set()


def _belonging_together(ways: list[Fields]) -> str:
    named = [f"({', '.join(members)})" for one in ways if (members := part_of(one, "properties"))]
    return f"The members in one of these pairs of brackets belong together: {' or '.join(named)}." if named else ""


def for_openai(parameters: Fields) -> Fields:
    """A function's parameters as OpenAI takes them: every list has `items`, and the root `properties`, if only empty
    ones. A schema nested too deeply stays as it is, for OpenAI to refuse."""
    try:
        made = _with_items(parameters)
    except RecursionError:
        return parameters
    return {"properties": {}} | made if made.get("type") == "object" else made


def _with_items(schema: Fields) -> Fields:
    made: Fields = {}
    for name, one in schema.items():
        if name in _NAMED and isinstance(one, dict):
            made[name] = {key: _inner_with_items(inner) for key, inner in cast(Fields, one).items()}
        elif name in _LISTS and isinstance(one, list):
            made[name] = [_inner_with_items(inner) for inner in cast(list[object], one)]
        else:
            made[name] = _inner_with_items(one) if name in _INNER else one
    kind = schema.get("type")
    is_list = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return made | {"items": {}} if is_list and "items" not in made else made


def _inner_with_items(schema: object) -> object:
    return _with_items(cast(Fields, schema)) if isinstance(schema, dict) else schema


def is_strict(schema: object) -> bool:
    """Whether OpenAI's `strict` mode accepts the schema: every object is closed and all its members are required.
    Raises RecursionError for a schema nested too deeply."""
    if not isinstance(schema, dict):
        return True
    fields = cast(Fields, schema)
    if _is_object(fields):
        named, required = fields.get("properties"), fields.get("required")
        names = set(cast(Fields, named)) if isinstance(named, dict) else set[str]()
        wanted = cast(list[object], required) if isinstance(required, list) else []
        if fields.get("additionalProperties") is not False or not names.issubset(wanted):
            return False
    return all(is_strict(one) for one in _inner(fields))


def _inner(schema: Fields) -> Iterator[object]:
    for name in _NAMED:
        yield from cast(Fields, schema[name]).values() if isinstance(schema.get(name), dict) else ()
    for name in _LISTS:
        yield from objects_of(schema.get(name))
    yield schema.get("items")


def _is_object(schema: Fields) -> bool:
    kind = schema.get("type")
    if "properties" not in schema and not _LISTS.keys().isdisjoint(schema):
        return False  # its members are declared in the alternatives
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
