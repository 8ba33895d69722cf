"""Every field in the official clients' types, one at a time: the gateway accepts it, and if another format cannot
express it, the translation refuses it by name."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaMessage
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from typing_extensions import is_typeddict

from backends.endpoints.messages_format import chat_body_from_messages
from backends.endpoints.responses_format import chat_body_from_responses
from backends.errors import UpstreamRejected
from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_view import parse_chat
from backends.formats.gemini import build_content_body
from backends.protocol import Call, Operation
from gateway.request.view import parse_request

Json = dict[str, Any]
LEAST: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TYPES: list[tuple[Operation, Any, Json]] = [
    ("chat.completions", ChatParams, LEAST),
    ("completions", CompletionCreateParamsBase, {"model": "m", "prompt": "hi"}),
    ("embeddings", EmbeddingCreateParams, {"model": "m", "input": "hi"}),
    ("responses", ResponseCreateParamsBase, {"model": "m", "input": "hi"}),
    ("responses.input_tokens", InputTokenCountParams, {"model": "m", "input": "hi"}),
    ("messages", MessageCreateParamsBase, LEAST | {"max_tokens": 9}),
    ("messages", BetaMessage, LEAST | {"max_tokens": 9}),
    ("messages.count_tokens", MessageCountTokensParams, LEAST),
]
PLAIN: dict[Any, Any] = {str: "x", int: 1, float: 0.5, bool: True, type(None): None, object: {"k": 1}}
MARKS = (Required, NotRequired, Annotated)
LISTS = (list, Iterable, Sequence)


def bare(of: Any) -> Any:
    while get_origin(of) in MARKS:
        of = get_args(of)[0]
    return of


def fields_of(of: Any) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)


def is_needed(of: Any, field: Any) -> bool:
    return get_origin(field) is Required or (of.__total__ and get_origin(field) is not NotRequired)


def is_answer(of: Any) -> bool:
    """Whether the type is part of an answer, which clients send back as the corresponding input type."""
    return hasattr(bare(of), "model_fields")


def least(of: Any) -> Any:
    """The smallest value of a type."""
    of = bare(of)
    origin, inner = get_origin(of), get_args(of)
    if is_typeddict(of):
        return {name: least(field) for name, field in fields_of(of).items() if is_needed(of, field)}
    if origin is Literal:
        return inner[0]
    if origin in (Union, UnionType):
        return least(min(inner, key=lambda one: (is_answer(one), is_typeddict(bare(one)), one is type(None))))
    if origin in LISTS:
        return [least(inner[0])]
    return {} if origin in (dict, Mapping) else PLAIN.get(of, "x")


def values(of: Any, within: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Values of a type: minimal except in one place, and one for each alternative."""
    of = bare(of)
    origin, inner = get_origin(of), get_args(of)
    if is_typeddict(of):
        smallest = least(of)
        yield smallest
        if of not in within and len(within) < 5:
            for name, field in fields_of(of).items():
                yield from (smallest | {name: value} for value in values(field, (*within, of)))
    elif origin in (Union, UnionType):
        for one in inner:
            if not is_answer(one):
                yield from values(one, within)
    elif origin in LISTS:
        yield []
        yield from ([value] for value in values(inner[0], within))
    else:
        yield least(of)


def bodies(of: Any, base: Json) -> set[bytes]:
    hints = {name: field for name, field in fields_of(of).items() if name != "model"}
    return {json.dumps(base | {name: value}).encode() for name, field in hints.items() for value in values(field)}


def into_anthropic(chat: bytes) -> bytes:
    return build_messages_body(parse_chat(chat), Call("chat.completions", "m", chat, False, "r"))


def into_gemini(chat: bytes) -> bytes:
    return build_content_body(parse_chat(chat), "m")


AS_CHAT: dict[Operation, Callable[[bytes], bytes]] = {
    "chat.completions": bytes,
    "responses": chat_body_from_responses,
    "messages": chat_body_from_messages,
}


def said(write: Callable[[bytes], bytes], body: bytes) -> bytes | str:
    """The body in another format, or why it has none."""
    try:
        return write(body)
    except UpstreamRejected as refused:
        return str(refused)


@pytest.mark.parametrize(("operation", "of", "base"), TYPES)
def test_whatever_the_official_clients_can_say_is_read(operation: Operation, of: Any, base: Json) -> None:
    asked = bodies(of, base)
    assert len(asked) > 5
    for body in asked:
        if json.loads(body).get("messages") != []:
            parse_request(operation, body)


@pytest.mark.parametrize(("operation", "of", "base"), [one for one in TYPES if one[0] in AS_CHAT])
def test_whatever_the_official_clients_can_say_is_translated_or_refused(
    operation: Operation, of: Any, base: Json
) -> None:
    for body in bodies(of, base):
        chat = said(AS_CHAT[operation], body)
        for write in (into_anthropic, into_gemini):
            assert said(write, chat) if isinstance(chat, bytes) else len(chat) > 10
