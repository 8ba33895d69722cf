"""Reads a provider's answer to a token count request. Pure."""

from backends.errors import UpstreamUnavailable
from backends.formats.json_objects import decode_object
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.protocol import Chunk
from backends.usage import Usage


def read_count(body: bytes, *, backend: str, member: str = "input_tokens") -> Chunk:
    """The answer, unchanged; OpenAI and Anthropic use the same `member`. Raises UpstreamUnavailable without a count."""
    try:
        count = token_count((decode_object(body) or {})[member], member)
    except (KeyError, MalformedUsage) as error:
        raise UpstreamUnavailable(f"{backend} answered without a count") from error
    return Chunk(body, usage=Usage(input_tokens=count), is_done=True)
