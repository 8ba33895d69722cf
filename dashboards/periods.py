"""The time range of a page, taken from its address so that a page can be bookmarked and sent. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from urllib.parse import urlencode

from dashboards.display import parse_utc

PRESETS: dict[str, str] = {
    "24h": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
    "month": "This month",
    "last-month": "Last month",
}
BEFORE = {
    "24h": "the 24 hours before",
    "7d": "the 7 days before",
    "30d": "the 30 days before",
    "month": "the same part of last month",
    "last-month": "the month before",
}
DEFAULT = "30d"
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""A time beyond these is mistyped and has no requests; the period before it could be out of datetime's range."""


@dataclass(frozen=True, slots=True)
class Period:
    """`until` is exclusive. `name` is a preset, or "" for other dates. `reached` is the end of the current hour, if
    such other dates are not over yet."""

    name: str
    since: datetime
    until: datetime
    reached: datetime | None = None

    @property
    def last_moment(self) -> datetime:
        """A moment of the last day in it."""
        return self.until - timedelta(microseconds=1)

    @property
    def label(self) -> str:
        return PRESETS.get(self.name) or f"{self.since:%-d %b %Y} – {self.last_moment:%-d %b %Y}"

    @property
    def phrase(self) -> str:
        """The label within a sentence."""
        return self.label.lower() if self.name else self.label

    @property
    def is_of_one_year(self) -> bool:
        """Whether its times can be told apart without their year."""
        return self.since.year == self.last_moment.year

    def within(self, other: "Period") -> "Period":
        """The part that lies in `other`; all of it if they do not overlap."""
        since, until = max(self.since, other.since), min(self.until, other.until)
        return Period("", since, until) if since < until else self

    def bounds(self) -> dict[str, str]:
        return {"since": self.since.isoformat(), "until": self.until.isoformat()}

    def before(self) -> "Period":
        """To compare with: the month before, or the same time before this one; only as far as this one has come."""
        length = self.until - self.since
        if self.name not in ("month", "last-month"):
            first = self.since - length
            return Period("", first, self.since if self.reached is None else first + (self.reached - self.since))
        first = (self.since - timedelta(days=1)).replace(day=1)
        return Period("", first, self.since if self.name == "last-month" else min(self.since, first + length))

    @property
    def before_phrase(self) -> str:
        """`before` in words, within a sentence."""
        whole = "as long a time before"
        return BEFORE.get(self.name, whole if self.reached is None else f"the same part of {whole}")

    def address(self) -> dict[str, str]:
        """The query parameters that keep this period in a link."""
        if self.name:
            return {} if self.name == DEFAULT else {"period": self.name}
        return self.bounds()


def parse_period(query: Mapping[str, str], now: datetime) -> Period:
    """From `?period=`, `?since=&until=` or `?since=&last=`; anything unreadable becomes the default.

    `until` is exclusive, as in the API; `last` is the last day of the period, as people choose it, in either order.
    """
    try:
        since, end = parse_utc(query["since"]), parse_utc(query["last"] if "last" in query else query["until"])
        if "last" in query:
            since, end = min(since, end), min(max(since, end), LATEST) + timedelta(days=1)
        since, until = max(since, EARLIEST), min(end, LATEST)
        if since < until:
            reached = _end_of_hour(now)
            return Period("", since, until, reached if since < reached < until else None)
    except (KeyError, ValueError, OverflowError):
        pass
    return preset(query.get("period", DEFAULT), now)


def preset(name: str, now: datetime) -> Period:
    """Whole hours, including the current one."""
    end = _end_of_hour(now)
    first = datetime.combine(now.date().replace(day=1), time(), UTC)
    if name == "month":
        return Period(name, first, end)
    if name == "last-month":
        return Period(name, (first - timedelta(days=1)).replace(day=1), first)
    lengths = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
    return Period(name if name in lengths else DEFAULT, end - lengths.get(name, lengths[DEFAULT]), end)


def _end_of_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def time_of(dimension: str, start: str) -> Period:
    """The hour, day, ISO week, month or quarter that a cost report calls `start`."""
    if dimension == "week":
        monday = parse_utc(f"{start}-1")
        return Period("", monday, monday + timedelta(days=7))
    if dimension == "quarter":
        year, _, number = start.partition("-Q")
        first = datetime(int(year), 3 * int(number) - 2, 1, tzinfo=UTC)
        return Period("", first, (first + timedelta(days=93)).replace(day=1))
    since = parse_utc(f"{start}-01" if dimension == "month" else start)
    if dimension == "month":
        return Period("", since, (since + timedelta(days=31)).replace(day=1))
    return Period("", since, since + (timedelta(hours=1) if dimension == "hour" else timedelta(days=1)))


def link(path: str, period: Period, **query: str | None) -> str:
    """The address of a page that keeps the period, as a link in another."""
    given = {name: value for name, value in query.items() if value is not None} | period.address()
    return below_ui(path) + (f"?{urlencode(given)}" if given else "")


def below_ui(path: str) -> str:
    """`/keys` as a relative link. All pages are on one level, so it works under any path of a proxy."""
    return path.removeprefix("/") or "./"
