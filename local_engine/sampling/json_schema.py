"""Rewrites JSON schemas for the constraint library: in our style, and without keywords that have no effect."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

# Fixed separators: a small model given free whitespace may write nothing else.
STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Without \u a key cannot be spelt so that it passes as one that the schema does not name.
PLAIN_ESCAPES: Final = {"json_allowed_escapes": 'nrbtf\\"'}
CONTROL: Final = ("\\u00", "\\x")
# Values, as JSON, that have no effect but that the library rejects. Zod declares the names of every record as strings.
IDLE: Final[Mapping[str, tuple[str, ...]]] = {
    "uniqueItems": ("false",),
    "propertyNames": ("true", "{}", '{"type": "string"}'),
    "unevaluatedProperties": ("true", "{}"),
    "unevaluatedItems": ("true", "{}"),
}
# JSON Schema's own. Any other format is an annotation (`int64`, `password`), which every validator ignores.
FORMATS: Final = (
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template",
    "uuid",
)  # fmt: skip
NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
VALUES: Final = ("const", "enum", "default", "examples")


def guided_schema(schema: Mapping[str, Any]) -> str:
    """The schema as text; its own options in `x-guidance` are kept, combined with our style.

    Raises RecursionError for one nested too deeply.
    """
    own = schema.get("x-guidance")
    style = {**(own if isinstance(own, dict) else {}), **STYLE}
    # Otherwise the library would drop control characters of texts, which it could not escape.
    if not any(escape in json.dumps(schema, ensure_ascii=False) for escape in CONTROL):
        style |= PLAIN_ESCAPES
    return json.dumps({**without_idle(schema), "x-guidance": style})


def without_idle(schema: Any) -> Any:
    """The same schema without keywords, at any depth, that have no effect and would be rejected."""
    if isinstance(schema, list):
        return [without_idle(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in cast(dict[str, Any], schema).items():
        if key in NAMED and isinstance(value, dict):
            kept[key] = {name: without_idle(one) for name, one in cast(dict[str, Any], value).items()}
        elif key in VALUES:
            kept[key] = value
        elif not _is_idle(key, value):
            kept[key] = without_idle(value)
    return kept


def _is_idle(key: str, value: Any) -> bool:
    if key == "format":
        return isinstance(value, str) and value not in FORMATS
    return key in IDLE and json.dumps(value) in IDLE[key]
