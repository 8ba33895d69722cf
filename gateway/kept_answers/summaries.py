"""Requests that continue a conversation which was compacted here."""

import msgspec

from backends.endpoints.responses_compaction import body_with_summary, has_summary
from gateway.request.many_values import require_bearable
from gateway.request.run import Incoming


def with_summary(incoming: Incoming) -> Incoming:
    """The request with a compaction of ours as a message that any model can read. Raises InvalidRequest where there are
    too many values."""
    if not has_summary(incoming.body):
        return incoming
    require_bearable(incoming.body)
    return msgspec.structs.replace(incoming, body=body_with_summary(incoming.body))
