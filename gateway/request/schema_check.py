"""Whether a JSON value fits a caller's JSON schema, according to jsonschema, in bounded time. Pure.

A schema may be malicious. So every step is counted, nothing outside the schema is fetched, and keywords are ignored if
counting cannot bound them (regular expressions), or if they negate others, so that an omission would become a failure
(`not`, `if`, `contains`, the "exactly" of `oneOf`). A value that fails here does not fit; one that passes may not
either.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

MOST_STEPS = 20_000
LETTERS_A_STEP = 256
"""Error messages repeat the value: this many letters cost as much as a step."""
KNOWN = (
    "$ref", "allOf", "anyOf", "const", "dependentRequired", "dependentSchemas", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "prefixItems", "properties", "propertyNames", "required", "type",
)  # fmt: skip
COMPARING = ("const", "dependentRequired", "enum")
"""Keywords whose values are compared at once; schemas nested in the others are counted as they are visited."""
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]


class _FarEnough(Exception):
    """The steps are used up."""


_steps: ContextVar[list[int]] = ContextVar("steps")


def allowance() -> list[int]:
    """A budget of steps, which several calls of `fits` may share."""
    return [MOST_STEPS]


def fits(value: Any, schema: Any, steps: list[int] | None = None) -> bool:
    """Also True if the schema is invalid or endless: nothing was found wrong by then. `steps` is an allowance to draw
    from."""
    from jsonschema.exceptions import UnknownType  # imported here and below: 0.1 s that most processes never need
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    token = _steps.set(allowance() if steps is None else steps)
    try:
        return _validator()(schema, registry=Registry()).is_valid(value)
    except (_FarEnough, RecursionError, UnknownType, Unresolvable):
        return True
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError):
        return True  # not a valid schema
    finally:
        _steps.reset(token)


@cache
def _validator() -> Any:
    """A jsonschema validator class that counts steps. Its meta-schema is empty, without `$id`, so that every reference
    starts at the root."""
    import attrs
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create

    theirs: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    keywords = {name: _counted(theirs[name], compares=name in COMPARING) for name in KNOWN}
    keywords["oneOf"] = _counted(theirs["anyOf"])
    keywords["additionalProperties"] = _counted(_unless_patterns(theirs["additionalProperties"]))
    made: Any = create({}, keywords, type_checker=Draft202012Validator.TYPE_CHECKER)
    made.evolve = attrs.evolve  # its own would switch to a class without counting at a nested `$schema`
    return made


def _counted(keyword: Keyword, *, compares: bool = False) -> Keyword:
    def check(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        _spend(1 + _members(value) + (_values_in(wanted) if compares else _members(wanted)))
        for error in keyword(validator, wanted, value, schema):
            _spend(len(error.message) // LETTERS_A_STEP)
            yield error

    return check


def _unless_patterns(keyword: Keyword) -> Keyword:
    """`patternProperties`, which is ignored here, also determines which properties are additional."""

    def check(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        return iter(()) if "patternProperties" in schema else keyword(validator, wanted, value, schema)

    return check


def _spend(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise _FarEnough


def _values_in(given: Any) -> int:
    """The number of values at any depth, counted up to MOST_STEPS."""
    found, left = 0, [given]
    while left and found <= MOST_STEPS:
        found, one = found + 1, left.pop()
        if isinstance(one, dict | list):
            left.extend(one.values() if isinstance(one, dict) else one)
    return found


def _members(given: Any) -> int:
    return len(given) if isinstance(given, dict | list) else 0
