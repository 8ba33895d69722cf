"""Whether a JSON value fits a JSON schema, as far as structured outputs use schemas. Pure.

Knows types, enum, const, properties, required, additionalProperties, items, anyOf and references inside the schema.
What else a schema says is not looked at: a value that does not fit here surely does not, one that does, as far as seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_STEPS = 20_000
"""A caller's schema can refer to itself without end: who gets so far has fitted so far."""
IS_TYPE: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}


def fits(value: Any, schema: Any) -> bool:
    """Raises TypeError, KeyError, AttributeError or RecursionError for what is no schema."""
    return _Walk(schema).fits(value, schema)


@dataclass(slots=True)
class _Walk:
    """Through one schema; references point into its root."""

    root: Any
    steps: int = 0

    def fits(self, value: Any, schema: Any) -> bool:
        self.steps += 1
        if not isinstance(schema, dict) or self.steps > MOST_STEPS:
            return schema is not False
        known: dict[str, Any] = schema
        if "$ref" in known:
            return self.fits(value, self._resolve(known["$ref"]))
        if "anyOf" in known and not any(self.fits(value, one) for one in known["anyOf"]):
            return False
        if "enum" in known and not any(_is_same(value, one) for one in known["enum"]):
            return False
        if "const" in known and not _is_same(value, known["const"]):
            return False
        types = known.get("type")
        wanted = [types] if isinstance(types, str) else types or []
        if wanted and not any(IS_TYPE[one](value) for one in wanted):
            return False
        if isinstance(value, dict):
            return self._fits_object(value, known)
        if isinstance(value, list) and "items" in known:
            return all(self.fits(one, known["items"]) for one in value)
        return True

    def _fits_object(self, value: dict[str, Any], schema: dict[str, Any]) -> bool:
        properties: dict[str, Any] = schema.get("properties") or {}
        if any(name not in value for name in schema.get("required") or ()):
            return False
        others = schema.get("additionalProperties", True)
        return all(self.fits(one, properties.get(name, others)) for name, one in value.items())

    def _resolve(self, reference: Any) -> Any:
        """Of `#/$defs/name`; True, which everything fits, for what is not in the schema."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        found = self.root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                found = found.get(step, True) if isinstance(found, dict) else True
        return found


def _is_same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
