"""JSON schemas as the library that keeps answers inside them takes them: in our style, nothing idle in them."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

# Fixed separators: a small model given free whitespace may write nothing else.
STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Without \u no key can be spelt so that it passes for one that the schema does not name.
PLAIN_ESCAPES: Final = {"json_allowed_escapes": 'nrbtf\\"'}
CONTROL: Final = ("\\u00", "\\x")
# What the library refuses though it says nothing, as JSON. Zod names the names of every record strings.
IDLE: Final[Mapping[str, tuple[str, ...]]] = {
    "uniqueItems": ("false",),
    "propertyNames": ("true", "{}", '{"type": "string"}'),
    "unevaluatedProperties": ("true", "{}"),
    "unevaluatedItems": ("true", "{}"),
}
# Those of JSON Schema. Any other is a note to people (`int64`, `password`), which every validator passes over.
FORMATS: Final = (
    "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template",
    "uuid",
)  # fmt: skip
NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
VALUES: Final = ("const", "enum", "default", "examples")


def guided_schema(schema: Mapping[str, Any]) -> str:
    """The schema as text; options that it holds as `x-guidance` stay, beside our style.

    Raises RecursionError for one nested too deeply.
    """
    own = schema.get("x-guidance")
    style = {**(own if isinstance(own, dict) else {}), **STYLE}
    # The library would leave out the control characters of a text that it may not escape.
    if not any(escape in json.dumps(schema, ensure_ascii=False) for escape in CONTROL):
        style |= PLAIN_ESCAPES
    return json.dumps({**without_idle(schema), "x-guidance": style})


def without_idle(schema: Any) -> Any:
    """The same schema without the keywords in it, however deep, that say nothing and would be refused."""
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
