"""Conversations compacted to a summary (the Responses API's `compaction`), for models of any provider. Pure.

OpenAI's models compact into an item that only they can read. Any other model is asked for a summary, and the item holds
its text: the model that comes next, whichever it is, gets it as a message.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import Fields, decode_object, objects_of
from backends.formats.json_splice import OBJECTS, NotAnObject, find_members, splice
from backends.formats.past_thinking import SEALED, seal, unsealed

COMPACTION: Final = "compaction"
TRIGGER: Final = "compaction_trigger"
"""The last input item of a request for a compaction."""
ASK: Final = (
    "Summarise this conversation. It will be continued from your summary and the user's own messages alone, perhaps by "
    "another model. State what the user wants, and every requirement that still holds; what was done and decided, and "
    "why; names, paths, figures and code that will be needed again, exactly as they are; results of tools that still "
    "matter; what failed; and what is to be done next. Invent nothing. Reply with the summary only."
)
LEAD: Final = "A summary of the conversation so far. Apart from the messages above, it is all that is left of it.\n\n"
KEPT_ROLES: Final = ("user", "system", "developer")
_TRIGGER: Final = b'"%b"' % TRIGGER.encode()
_MARKS: Final = (b'"%b"' % COMPACTION.encode(), b'"%b' % SEALED.encode())


def asks_compaction(asked: Mapping[str, object]) -> bool:
    """Whether a compaction is requested instead of an answer."""
    items = asked.get("input")
    last = objects_of(items)[-1:] if isinstance(items, list) else []
    return any(item.get("type") == TRIGGER for item in last)


def is_for_compaction(body: bytes) -> bool:
    """The same of a request's body."""
    return _TRIGGER in body and asks_compaction(decode_object(body) or {})


def compaction_item(response_id: str, summary: str) -> Fields:
    return {"type": COMPACTION, "id": f"cmp_{response_id}", "encrypted_content": seal(summary)}


def is_kept_message(item: Mapping[str, object]) -> bool:
    """Whether a compacted conversation still has it word for word."""
    return item.get("role") in KEPT_ROLES and item.get("type", "message") == "message"


def is_own_compaction(item: Mapping[str, object]) -> bool:
    return item.get("type") == COMPACTION and bool(unsealed(item.get("encrypted_content")))


def has_summary(body: bytes) -> bool:
    """Whether a compaction of ours or a trigger may be among the request's items: a search that spares most bodies
    parsing."""
    return all(mark in body for mark in _MARKS) or _TRIGGER in body


def body_with_summary(body: bytes) -> bytes:
    """The request without the triggers of earlier turns, and with the last compaction of ours as a message, after those
    messages of the compacted conversation that are kept. The same bytes if it has neither."""
    try:
        place = find_members(body)["input"]
        given = OBJECTS.decode(place.of(body))
    except (NotAnObject, KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return body  # the next reader reports what is wrong
    items = [(item, decode_object(msgspec.json.encode(item)) or {}) for item in given]
    left = [one for one in items[:-1] if one[1].get("type") != TRIGGER] + items[-1:]
    found = [place for place, (_, read) in enumerate(left) if is_own_compaction(read)]
    made = [item for item, _ in left]
    if found:
        last = found[-1]
        before = [item for item, read in left[:last] if is_kept_message(read)]
        summary = {"role": "user", "content": LEAD + unsealed(left[last][1]["encrypted_content"])}
        made = [*before, summary, *made[last + 1 :]]
    return body if made == given else splice(body, {"input": msgspec.json.encode(made)})
