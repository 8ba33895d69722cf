"""Options shared by many commands: JSON, a period, and an API query read from options."""

from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from gateway.config.addresses import parse_http_url
from gateway.errors import ConfigurationError
from gateway.instants import microseconds
from gateway.moments import parse_moment
from gateway.yaml_document import problem_of

Query = TypeVar("Query", bound=BaseModel)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AsJsonList = Annotated[bool, typer.Option("--json", help="Print one JSON list.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Since = Annotated[str | None, typer.Option("--since", "--from", help="ISO 8601; 30 days ago when left out.")]
Until = Annotated[str | None, typer.Option("--until", "--to", help="ISO 8601, exclusive; now when left out.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="ISO 8601: leave out corrections booked from then on, as when the month was closed; requests shipped late "
        "stay in.",
    ),
]
ClockIsRight = Annotated[
    bool,
    typer.Option(
        "--clock-is-right", help="Book although the books hold later dates: this clock is right, another was ahead."
    ),
]
TimeZone = Annotated[
    str | None,
    typer.Option("--time-zone", help="Whose days and months, such as Europe/Berlin; UTC when left out."),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="Whose GPUs: a backend with gpu_hour_usd, or `local`, the bundled engine. The engine's when left out; if "
        "it is off, the first such backend's.",
    ),
]
Where = Annotated[list[str] | None, typer.Option("--where", help="Only these, as team=search; may be repeated.")]


def http_url(text: str | None) -> str | None:
    """An option's callback: httpx raises errors of various kinds for an address that cannot be."""
    try:
        return text if text is None else parse_http_url(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def period_us(since: str | None, until: str | None, at_most: int) -> tuple[int, int]:
    """Both ends; `at_most` where `until` is left out. A period that ends before it begins is refused: that nothing is
    found in it would look like a result."""
    since_us, until_us = instant_us(since or "1970-01-01"), at_most if until is None else instant_us(until)
    if since_us >= until_us:
        raise ConfigurationError("--since must be before --until, which is now where it is left out")
    return since_us, until_us


def instant_us(text: str) -> int:
    try:
        return microseconds(parse_moment(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from error


def read(schema: type[Query], /, **given: Any) -> Query:
    """The API's own query, so that both refuse the same things. None means not given."""
    try:
        return schema.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][-1]) if first["loc"] else "the options"
        raise typer.BadParameter(f"{name} {problem_of(first)}") from error
