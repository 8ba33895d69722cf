"""Rewrites JSON schemas for the constraint library: in our style, and without keywords that have no effect."""

import json
import math
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
DEFINED: Final = ("$defs", "definitions")
NAMED: Final = ("properties", "patternProperties", *DEFINED)
UNITED: Final = ("allOf", "anyOf", "oneOf")
LOWER: Final = ("minimum", "exclusiveMinimum")
UPPER: Final = ("maximum", "exclusiveMaximum")
BOUNDS: Final = LOWER + UPPER
STEPS: Final = {"exclusiveMinimum": 1e-9, "exclusiveMaximum": -1e-9}
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


def without_idle(schema: Any, *, is_part: bool = False) -> Any:
    """The same schema without keywords, at any depth, that have no effect and would be rejected, and with bounds that
    the library keeps to. `is_part`: another schema may bound the same value."""
    if isinstance(schema, list):
        return [without_idle(one, is_part=is_part) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in cast(dict[str, Any], schema).items():
        if key in NAMED and isinstance(value, dict):
            named = cast(dict[str, Any], value)
            kept[key] = {name: without_idle(one, is_part=key in DEFINED) for name, one in named.items()}
        elif key in VALUES:
            kept[key] = value
        elif not _is_idle(key, value):
            kept[key] = without_idle(value, is_part=key in UNITED)
    _part_bounds(kept, is_part=is_part or not kept.keys().isdisjoint(("$ref", *UNITED)))
    return kept


def _part_bounds(schema: dict[str, Any], *, is_part: bool) -> None:
    """Moves whole exclusive bounds by a billionth towards the other bound if that is less than one away, or may be: the
    library would allow such a bound itself, without decimals."""
    known = {key: schema[key] for key in BOUNDS if _is_ordinary(schema.get(key))}
    lowest = max((known[key] for key in LOWER if key in known), default=-math.inf)
    highest = min((known[key] for key in UPPER if key in known), default=math.inf)
    if highest - lowest >= 1 and not is_part:
        return
    for key, step in STEPS.items():
        if key in known and known[key] % 1 == 0:
            schema[key] += step


def _is_ordinary(value: object) -> bool:
    """Whether it is a number to which a billionth can be added."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6


def _is_idle(key: str, value: Any) -> bool:
    if key == "format":
        return isinstance(value, str) and value not in FORMATS
    return key in IDLE and json.dumps(value) in IDLE[key]
