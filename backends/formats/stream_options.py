"""`stream_options` of a chat: set to ask for a stream's usage, and removed for servers that refuse it. Pure."""

import re
from typing import Final

from backends.formats.json_objects import without_escapes
from backends.formats.json_splice import find_members, splice

_ASKED_FOR_USAGE: Final = (b'{"include_usage":true}', b'{"include_usage": true}')  # as clients' libraries write it
_REFUSED: Final = re.compile(rb"stream_options|include_usage")


def with_usage(options: bytes) -> bytes:
    """Asks for usage at the end. If the caller did not ask, vLLM's `continuous_usage_stats` is removed too."""
    if options in _ASKED_FOR_USAGE:
        return options
    if options == b"null":
        return _ASKED_FOR_USAGE[0]
    members = find_members(options)
    asked = members.get("include_usage")
    if asked is not None and asked.of(options) == b"true":
        return options
    return splice(options, {"include_usage": b"true", "continuous_usage_stats": None}, members)


def without_refused_options(body: bytes, refusal: bytes) -> bytes:
    """A chat without the question for its usage, if an error refuses that: Databricks and others do not know it. The
    same bytes otherwise, or if the caller asked for more than the usage."""
    if not _REFUSED.search(refusal):
        return body
    members = find_members(body)
    options = members.get("stream_options")
    is_asked = options is not None and options.of(body) in _ASKED_FOR_USAGE
    return splice(body, {"stream_options": None}, members) if is_asked else body


def may_be_repeated(body: bytes) -> bool:
    """Whether a chat has such an error's words beside its own question: a server that repeats them says nothing about
    other chats."""
    return _REFUSED.search(without_escapes(splice(body, {"stream_options": None}))) is not None
