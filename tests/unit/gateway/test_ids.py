"""Request ids: as RFC 9562 says, in the order of time, and random in all that it leaves."""

import time
import uuid

from gateway.ids import new_request_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    ids = [new_request_id() for _ in range(400)]
    after = time.time_ns() // 1_000_000
    for one in ids:
        parsed = uuid.UUID(one)
        assert (parsed.hex, parsed.version, parsed.variant) == (one, 7, uuid.RFC_4122)
        assert before <= parsed.int >> 80 <= after
    kinds = [len({one[place] for one in ids}) for place in range(13, 32)]
    assert kinds == [16] * 3 + [4] + [16] * 15
