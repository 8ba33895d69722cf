"""A provider's answer to how many tokens a request has. Pure."""

from backends.errors import UpstreamUnavailable
from backends.formats.json_objects import decode_object
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.protocol import Chunk
from backends.usage import Usage


def read_count(body: bytes, *, backend: str, member: str = "input_tokens") -> Chunk:
    """The answer, untouched; OpenAI and Anthropic call its count alike. Raises UpstreamUnavailable when it has none."""
    try:
        count = token_count((decode_object(body) or {})[member], member)
    except (KeyError, MalformedUsage) as error:
        raise UpstreamUnavailable(f"{backend} answered without a count") from error
    return Chunk(body, usage=Usage(input_tokens=count), is_done=True)
