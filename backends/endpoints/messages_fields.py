"""Reads fields of Anthropic's Messages API, or refuses them in its format. Pure."""

from typing import cast

from backends.endpoints.messages_events import messages_error
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.json_objects import Fields, number, text_of


def invalid(param: str, why: str) -> UpstreamRejected:
    """The error for a request that is invalid for any backend."""
    return UpstreamRejected(f"{param}: {why}", body=messages_error(400, f"{param}: {why}"))


def unsayable(param: str, why: str, details: Fields | None = None) -> Untranslatable:
    """The error for a request that only Anthropic's models can serve. `details` are for clients that react to them."""
    return Untranslatable(f"{param}: {why}", body=messages_error(400, f"{param}: {why}", details=details))


def named(fields: Fields, name: str, where: str) -> str:
    """A string that must be there and not empty."""
    if not (value := text_of(fields, name)):
        raise invalid(f"{where}.{name}", "must be a non-empty string")
    return value


def object_of(value: object, where: str) -> Fields:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise invalid(where, "must be an object")
    return cast(Fields, value)


def list_of(fields: Fields, name: str, where: str = "") -> list[object]:
    """A list. One of the request itself, which has no `where`, may be missing."""
    value = fields.get(name)
    if value is None and not where:
        return []
    if not isinstance(value, list):
        raise invalid(f"{where}.{name}" if where else name, "must be a list")
    return cast(list[object], value)


def share_of(fields: Fields, name: str) -> float:
    """A number from 0 to 1."""
    value = number(fields, name)
    if value is None or not 0 <= value <= 1:
        raise invalid(name, "must be a number from 0 to 1")
    return value
