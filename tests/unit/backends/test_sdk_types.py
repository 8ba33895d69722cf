"""Everything sent in another API's format is valid by the types of its SDK, which require more than we read."""

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseCompletedEvent, ResponseIncompleteEvent, ResponseStreamEvent
from pydantic import TypeAdapter

from backends.endpoints.messages_events import MessagesEventWriter, message_from_answer
from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_items import ResponseHead
from backends.formats.chat_chunks import (
    Answer,
    Head,
    delta_chunk,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.http.sse import SseParser
from backends.protocol import Chunk
from backends.usage import Usage

HEAD = Head("chatcmpl-1", "m", 7)
USAGE = Usage(input_tokens=30, cached_input_tokens=4, cache_write_5m_tokens=5, cache_write_1h_tokens=6, output_tokens=9)
FINISH_REASONS = ["stop", "length", "tool_calls", "content_filter"]
RESPONSE_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
MESSAGE_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def answer(finish_reason: str) -> Chunk:
    """A chat answer with everything that one can contain."""
    whole = Answer(HEAD, text=["It is"], reasoning=["hm"], finish_reason=finish_reason, usage=USAGE)
    whole.add_tool_call("c1", "weather", '{"city":"Oslo"}')
    return whole.chunk()


def stream(finish_reason: str) -> list[Chunk]:
    """The same answer as a stream."""
    return [
        role_chunk(HEAD),
        reasoning_chunk(HEAD, "hm"),
        text_chunk(HEAD, "It is"),
        delta_chunk(HEAD, {"refusal": "No."}, 3),
        tool_start_chunk(HEAD, 0, "c1", "weather"),
        tool_arguments_chunk(HEAD, 0, '{"city":"Oslo"}'),
        finish_chunk(HEAD, finish_reason),
        usage_chunk(HEAD, USAGE, is_shown=True, is_malformed=False),
        done_chunk(),
    ]


def events(payload: bytes) -> list[bytes]:
    return SseParser().receive(payload)


@pytest.mark.parametrize("finish_reason", FINISH_REASONS)
def test_a_chat_is_one_of_openai(finish_reason: str) -> None:
    whole = ChatCompletion.model_validate_json(answer(finish_reason).payload)
    pieces = [ChatCompletionChunk.model_validate_json(chunk.payload[6:]) for chunk in stream(finish_reason)[:-1]]
    assert whole.usage is not None
    assert whole.usage == pieces[-1].usage
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cache_write_tokens == 11


@pytest.mark.parametrize("finish_reason", FINISH_REASONS)
def test_a_response_is_one_of_openai(finish_reason: str) -> None:
    head = ResponseHead("resp_1", 7, {"model": "m"})
    chunk = answer(finish_reason)
    whole = Response.model_validate_json(response_from_answer(chunk.payload, chunk.usage, head, now=9))
    writer = ResponsesEventWriter(head, now=lambda: 9)
    said = [
        RESPONSE_EVENT.validate_json(data) for chunk in stream(finish_reason) for data in events(writer.write(chunk))
    ]
    last = said[-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    assert whole.usage is not None
    assert whole.usage == last.response.usage
    assert whole.usage.input_tokens_details.cache_write_tokens == 11


@pytest.mark.parametrize("finish_reason", FINISH_REASONS)
def test_a_message_is_one_of_anthropic(finish_reason: str) -> None:
    chunk = answer(finish_reason)
    whole = Message.model_validate_json(message_from_answer(chunk.payload, chunk.usage, message_id="msg_1", model="m"))
    writer = MessagesEventWriter(message_id="msg_1", model="m", input_tokens=3)
    said = [
        MESSAGE_EVENT.validate_json(data) for chunk in stream(finish_reason) for data in events(writer.write(chunk))
    ]
    assert said[-1].type == "message_stop"
    assert (whole.usage.input_tokens, whole.usage.cache_creation_input_tokens) == (15, 11)
