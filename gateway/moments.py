"""Times as people write them in queries: ISO 8601 dates or date-times, UTC unless stated otherwise."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator


def parse_moment(value: object) -> datetime:
    """A date means midnight UTC. Raises ValueError."""
    if isinstance(value, datetime):
        moment = value
    else:
        text = str(value).strip()
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            try:
                moment = datetime.combine(date.fromisoformat(text), time())
            except ValueError as error:
                raise ValueError("is not an ISO 8601 date or time such as 2026-11-01 or 2026-11-01T12:00Z") from error
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside the years 1 to 9999 in UTC") from error


def require_zone(name: str) -> str:
    """An IANA time zone known to this machine. Raises ValueError."""
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{name[:64]!r} is not a time zone; use a name such as Europe/Berlin") from error
    return name


def localised(given: Any) -> Any:
    """Query fields with `time_zone` applied to times that have no zone of their own. Unreadable values are left for the
    field's own validation."""
    if not isinstance(given, Mapping):
        return given
    fields = dict(cast("Mapping[str, Any]", given))
    try:
        zone = ZoneInfo(require_zone(str(fields.get("time_zone") or "UTC")))
    except ValueError:
        return fields
    for name in ("since", "until", "as_of", "compare_since", "compare_until"):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(str(fields.get(name)).strip())
            fields[name] = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return fields


Moment = Annotated[datetime, BeforeValidator(parse_moment)]
