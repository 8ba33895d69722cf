"""Gemini's own Schema, a part of OpenAPI's, as a JSON schema. Pure."""

from collections.abc import Mapping
from typing import Final

from backends.formats.json_objects import Fields, objects_of, text_of
from backends.formats.proto_json import members_of, whole_number

_SAME: Final = ("title", "description", "default", "enum", "pattern", "minimum", "maximum", "required")
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NO_TYPE: Final = ("", "type_unspecified")
_FORMATS_OF_PROTO: Final = ("int32", "int64", "float", "double", "enum")
"""Say nothing that the type and its values do not, and others refuse formats that they do not know."""


def json_schema_of(schema: Mapping[str, object], *, closes: bool = False) -> Fields:
    """It says the same; `example` is left out, and `propertyOrdering` is the order of its properties. `closes`: its
    objects have no members beside those that they name, which is all that Gemini answers with.
    Raises NamedTwice, and RecursionError for one that is nested too deeply."""
    said = members_of(schema)
    made: Fields = {name: said[name] for name in _SAME if name in said}
    made |= {name: count for name in _COUNTS if (count := whole_number(said.get(name))) is not None}
    if (form := text_of(said, "format")) and form not in _FORMATS_OF_PROTO:
        made["format"] = form
    kind = (text_of(said, "type") or "").lower()
    if kind not in _NO_TYPE:
        made["type"] = kind
    if isinstance(said.get("items"), Mapping):
        made["items"] = _inner(said["items"], closes=closes)
    if isinstance(properties := said.get("properties"), Mapping):
        made["properties"] = _properties(properties, said.get("propertyOrdering"), closes=closes)
        if closes and properties:
            made["additionalProperties"] = False
    if isinstance(said.get("anyOf"), list):
        made["anyOf"] = [json_schema_of(one, closes=closes) for one in objects_of(said["anyOf"])]
    if (closed := said.get("additionalProperties")) is not None:
        made["additionalProperties"] = _inner(closed, closes=closes)
    if isinstance(definitions := said.get("defs"), Mapping):
        made["$defs"] = _properties(definitions, None, closes=closes)
    if (reference := text_of(said, "ref")) is not None:
        made["$ref"] = reference.replace("#/defs/", "#/$defs/")
    return _nullable(made) if said.get("nullable") is True else made


def _inner(value: object, *, closes: bool) -> object:
    return json_schema_of(value, closes=closes) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]


def _properties(named: Mapping[object, object], order: object, *, closes: bool) -> Fields:
    found = {str(name): _inner(one, closes=closes) for name, one in named.items()}
    first = [name for name in order if isinstance(name, str) and name in found] if isinstance(order, list) else []  # pyright: ignore[reportUnknownVariableType]
    return {name: found[name] for name in dict.fromkeys([*first, *found])}


def _nullable(schema: Fields) -> Fields:
    """In JSON schema null is a type of its own."""
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = [kind, "null"]
    if isinstance(options := schema.get("anyOf"), list):
        schema["anyOf"] = [*options, {"type": "null"}]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(values := schema.get("enum"), list) and None not in values:
        schema["enum"] = [*values, None]  # pyright: ignore[reportUnknownVariableType]
    return schema
