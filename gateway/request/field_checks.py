"""Checks of request fields; errors name the field in a sentence. Pure; reads no body."""

from typing import Final, Literal

from gateway.errors import InvalidRequest

LONGEST_OUTPUT_TOKENS: Final = 10_000_000
MOST_CHOICES: Final = 128


def invalid_field(message: str) -> InvalidRequest:
    problem, _, path = message.partition(" - at `$")
    field = path.removesuffix("`").lstrip(".") or None
    if problem.startswith("Object missing required field"):
        field = ".".join(filter(None, (field, problem.split("`")[1])))
    where = f"{field}: " if field else ""
    return InvalidRequest(f"{where}{problem}.", param=field)


def whole_number(text: str) -> int | None:
    """At most nine digits: no field needs more, and Python refuses to parse thousands."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def checked_limit(
    name: Literal[
        "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "top_n", "max_tokens_per_doc"
    ],
    value: int | None,
    *,
    least: int = 1,
) -> int | None:
    return None if value is None else _checked(name, value, least, LONGEST_OUTPUT_TOKENS)


def checked_choices(name: Literal["n", "best_of", "candidateCount"], value: int | None) -> int:
    return 1 if value is None else _checked(name, value, 1, MOST_CHOICES)


def _checked(name: str, value: int, least: int, most: int) -> int:
    """The value, or InvalidRequest with OpenAI's own codes."""
    if least <= value <= most:
        return value
    code = "integer_below_min_value" if value < least else "integer_above_max_value"
    raise InvalidRequest(f"{name}: must be from {least} to {most:,}, not {value}.", param=name, code=code)
