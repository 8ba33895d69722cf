"""Times in queries: ISO 8601 dates or date-times, UTC unless they say otherwise."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated

from pydantic import BeforeValidator

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(value: object) -> datetime:
    """A date means its midnight in UTC. Raises ValueError."""
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
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, BeforeValidator(parse_moment)]


def microseconds(moment: datetime | None) -> int | None:
    """Since the epoch; exact."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def moment_of(at_us: int) -> datetime:
    """The inverse."""
    return EPOCH + timedelta(microseconds=at_us)
