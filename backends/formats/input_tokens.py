"""A provider's answer to how many tokens a request has, in OpenAI's words and in Anthropic's. Pure."""

from backends.errors import UpstreamUnavailable
from backends.formats.json_objects import decode_object
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.protocol import Chunk
from backends.usage import Usage


def read_count(body: bytes, *, backend: str) -> Chunk:
    """The answer, untouched. Raises UpstreamUnavailable when no count is in it."""
    try:
        count = token_count((decode_object(body) or {})["input_tokens"], "input_tokens")
    except (KeyError, MalformedUsage) as error:
        raise UpstreamUnavailable(f"{backend} answered without a count", backend=backend) from error
    return Chunk(body, usage=Usage(input_tokens=count), is_done=True)
