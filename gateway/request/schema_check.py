"""Whether a JSON value fits the JSON schema that a caller gave: jsonschema's verdict, in bounded time. Pure.

A schema may be made to harm. So every step is counted, nothing outside the schema is fetched, and what no count bounds
(regular expressions) or what would turn round what is left out (`not`, `if`, `contains`, the "only" of `oneOf`) is not
looked at: a value that does not fit here surely does not, one that does, as far as seen.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

MOST_STEPS = 20_000
LETTERS_A_STEP = 256
"""An error's text repeats the value: so many letters of it cost as much as a step."""
KNOWN = (
    "$ref", "allOf", "anyOf", "const", "dependentRequired", "dependentSchemas", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "prefixItems", "properties", "propertyNames", "required", "type",
)  # fmt: skip
COMPARING = ("const", "dependentRequired", "enum")
"""They hold values, gone through at once; the schemas that others hold are counted as they are walked through."""
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]


class _FarEnough(Exception):
    """The steps are spent."""


_steps: ContextVar[list[int]] = ContextVar("steps")


def allowance() -> list[int]:
    """The steps that several values may take together."""
    return [MOST_STEPS]


def fits(value: Any, schema: Any, steps: list[int] | None = None) -> bool:
    """True too where the schema is none, or has no end: who gets so far has fitted so far. `steps` is an allowance that
    this takes its part of."""
    from jsonschema.exceptions import UnknownType  # here, and below: a tenth of a second that most processes never need
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    token = _steps.set(allowance() if steps is None else steps)
    try:
        return _validator()(schema, registry=Registry()).is_valid(value)
    except (_FarEnough, RecursionError, UnknownType, Unresolvable):
        return True
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError):
        return True  # what jsonschema stumbles over is no schema
    finally:
        _steps.reset(token)


@cache
def _validator() -> Any:
    """A class of jsonschema's that counts. Its empty meta-schema has no `$id`: every reference starts at the root."""
    import attrs
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create

    theirs: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    keywords = {name: _counted(theirs[name], compares=name in COMPARING) for name in KNOWN}
    keywords["oneOf"] = _counted(theirs["anyOf"])
    keywords["additionalProperties"] = _counted(_unless_patterns(theirs["additionalProperties"]))
    made: Any = create({}, keywords, type_checker=Draft202012Validator.TYPE_CHECKER)
    made.evolve = attrs.evolve  # its own would change to a class that does not count where a `$schema` stands inside
    return made


def _counted(keyword: Keyword, *, compares: bool = False) -> Keyword:
    def check(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        _spend(1 + _members(value) + (_values_in(wanted) if compares else _members(wanted)))
        for error in keyword(validator, wanted, value, schema):
            _spend(len(error.message) // LETTERS_A_STEP)
            yield error

    return check


def _unless_patterns(keyword: Keyword) -> Keyword:
    """Which properties are additional, `patternProperties` has a word in."""

    def check(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        return iter(()) if "patternProperties" in schema else keyword(validator, wanted, value, schema)

    return check


def _spend(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise _FarEnough


def _values_in(given: Any) -> int:
    """To any depth."""
    found, left = 0, [given]
    while left and found <= MOST_STEPS:
        found, one = found + 1, left.pop()
        if isinstance(one, dict | list):
            left.extend(one.values() if isinstance(one, dict) else one)
    return found


def _members(given: Any) -> int:
    return len(given) if isinstance(given, dict | list) else 0
