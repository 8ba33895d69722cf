"""What is wrong with a field of a caller's body, in a sentence that names it. Pure; reads no body."""

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


def checked_limit(
    name: Literal["max_tokens", "max_completion_tokens", "max_output_tokens"], value: int | None
) -> int | None:
    if value is None:
        return None
    if not 1 <= value <= LONGEST_OUTPUT_TOKENS:
        raise InvalidRequest(f"{name}: must be from 1 to {LONGEST_OUTPUT_TOKENS:,}, not {value}.", param=name)
    return value


def checked_choices(name: Literal["n", "best_of"], value: int | None) -> int:
    if value is None:
        return 1
    if not 1 <= value <= MOST_CHOICES:
        raise InvalidRequest(f"{name}: must be from 1 to {MOST_CHOICES}, not {value}.", param=name)
    return value
