"""Converts Gemini's Schema, a subset of OpenAPI's, to JSON Schema. Pure."""

from collections.abc import Mapping
from typing import Final

from backends.formats.json_objects import Fields, objects_of, text_of
from backends.formats.proto_json import members_of, whole_number

_SAME: Final = ("title", "description", "default", "enum", "pattern", "minimum", "maximum", "required")
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NO_TYPE: Final = ("", "type_unspecified")
_FORMATS_OF_PROTO: Final = ("int32", "int64", "float", "double", "enum")
"""Formats to drop: they add nothing to the type and its values, and other providers reject unknown formats."""


def json_schema_of(schema: Mapping[str, object], *, closes: bool = False) -> Fields:
    """The equivalent JSON schema. `example` is dropped; `propertyOrdering` becomes the order of the properties.
    `closes`: objects allow no members but their properties, as Gemini never answers with others.
    Raises NamedTwice, and RecursionError if nested too deeply."""
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
    return json_schema_of(value, closes=closes) if isinstance(value, Mapping) else value


def _properties(named: Mapping[object, object], order: object, *, closes: bool) -> Fields:
    found = {str(name): _inner(one, closes=closes) for name, one in named.items()}
    first = [name for name in order if isinstance(name, str) and name in found] if isinstance(order, list) else []
    return {name: found[name] for name in dict.fromkeys([*first, *found])}


def _nullable(schema: Fields) -> Fields:
    """The schema that also allows null, a separate type in JSON Schema."""
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = [kind, "null"]
    if isinstance(options := schema.get("anyOf"), list):
        schema["anyOf"] = [*options, {"type": "null"}]
    if isinstance(values := schema.get("enum"), list) and None not in values:
        schema["enum"] = [*values, None]
    return schema
