"""Calls of the backends under contract, and what their answers say."""

import msgspec

from backends.http.sse import SseParser
from backends.protocol import Call, Chunk, Operation, Timeouts

PATIENT = Timeouts()


def make_call(
    *,
    stream: bool = True,
    wants_usage: bool = True,
    timeouts: Timeouts = PATIENT,
    operation: Operation = "chat.completions",
) -> Call:
    body: dict[str, object] = {
        "model": "auto",
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream": stream,
    }
    return Call(operation, "the-model", msgspec.json.encode(body), stream, "r-1", timeouts, wants_usage)


def text_of(chunks: list[Chunk]) -> str:
    """The text that an OpenAI client would read from the payloads."""
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.receive(chunk.payload)]
    documents = [msgspec.json.decode(event) for event in events if event != b"[DONE]"]
    choices = [document.get("choices") or [] for document in documents]
    said = [choice["delta"].get("content") for found in choices if isinstance(found, list) for choice in found]
    return "".join(filter(None, said))
