"""When to ask again: told in a header, or in an error's body."""

from datetime import UTC, datetime

import pytest

from backends.errors import RateLimited
from backends.http.errors import error_from_status
from backends.http.retry_after import parse_retry_after

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
RETRY_AFTER: list[tuple[dict[str, str], float | None]] = [
    ({}, None),
    ({"retry-after": "3"}, 3.0),
    ({"retry-after": "0.25"}, 0.25),
    ({"retry-after": "-3"}, 0.0),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "1e300"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, 30.0),
    ({"retry-after": "Sat, 21 Nov 2026 12:00:30 -0000"}, 30.0),
    ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0.0),
    ({"retry-after": "Sat, 21 Nov 2099 11:00:00 GMT"}, None),
    ({"retry-after": "Sat, 99 Nov 2026 11:00:00 GMT"}, None),
]


@pytest.mark.parametrize(("headers", "expected"), RETRY_AFTER)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert parse_retry_after(headers, lambda: NOW) == expected


IN_THE_BODY: list[tuple[bytes, float | None]] = [
    (b'{"error":{"code":429,"details":[{"@type":"google.rpc.RetryInfo","retryDelay": "34.5s"}]}}', 34.5),
    (b'{"error":{"message":"Rate limit reached for m. Please try again in 125ms. Visit x"}}', 0.125),
    (b'{"error":{"message":"Limit 100, Used 99, Requested 9. Please try again in 7m12.5s. Need more?"}}', 432.5),
    (b'{"error":{"message":"on requests per day. Please try again in 1h2m3s."}}', 3723.0),
    (b'{"error":{"message":"Please retry after 26 seconds."}}', 26.0),
    (b'{"error":{"message":"Rate limit exceeded","retry_after":12.5}}', 12.5),
    (b'{"error":{"message":"Please try again in a moment, or in 3 s"}}', None),
    (b'{"error":{"details":[{"retryDelay": "soon"}]}}', None),
]


@pytest.mark.parametrize(("body", "seconds"), IN_THE_BODY)
def test_when_to_retry_may_be_told_in_the_body(body: bytes, seconds: float | None) -> None:
    headers: list[tuple[dict[str, str], float | None]] = [({}, seconds), ({"retry-after": "2"}, 2.0)]
    for told, expected in headers:
        error = error_from_status(429, told, body, backend="b")
        assert isinstance(error, RateLimited)
        assert error.retry_after_seconds == expected
