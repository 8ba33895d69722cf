"""The fields of each endpoint's body that the gateway reads. All others pass through unread; only the provider
validates them."""

from contextlib import suppress
from typing import Final

import msgspec

from backends.endpoints.messages_format import tier_beside_anthropics
from backends.formats.answer_schema import JSON_KINDS
from backends.formats.json_splice import VALUES
from backends.formats.usage_wire import tier_with_surcharges
from backends.protocol import Operation

ABSENT: Final = msgspec.Raw(b"")


class Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None
    image_url: msgspec.Raw = msgspec.Raw(b"")
    encrypted_content: object = None
    """What one of Codex's agents tells another: text, unless one of OpenAI's models wrote it."""


class Message(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


class Format(msgspec.Struct):
    """An answer format. `json_schema` holds the schema in a chat, `schema` and `value` in formats other than that."""

    type: str = "text"
    json_schema: msgspec.Raw = ABSENT
    schema: msgspec.Raw = ABSENT
    value: msgspec.Raw = ABSENT

    @property
    def has_schema(self) -> bool:
        beside = self.type in JSON_KINDS and any(bytes(one).startswith(b"{") for one in (self.schema, self.value))
        return self.type == "json_schema" or beside

    @property
    def tokens(self) -> int:
        return sum(len(memoryview(one)) for one in (self.json_schema, self.schema, self.value)) // 4


class NamedModels(msgspec.Struct, kw_only=True):
    """Where a request may name models besides its `model`: at Anthropic the first, at LiteLLM's proxy all but the last,
    which is an adapter at SGLang."""

    fallbacks: object = None
    context_window_fallbacks: object = None
    content_policy_fallbacks: object = None
    router_settings_override: object = None
    user_config: object = None
    lora_path: object = None

    @property
    def are_named(self) -> bool:
        fallbacks = self.fallbacks or self.context_window_fallbacks or self.content_policy_fallbacks
        return bool(fallbacks or self.router_settings_override or self.user_config or self.lora_path)


class Body(NamedModels):
    """Fields that more than one endpoint has."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    service_tier: str | None = None


class ChatBody(Body):
    messages: list[Message] = msgspec.field(default_factory=list[Message])
    max_completion_tokens: int | None = None
    n: int | None = None
    tools: list[msgspec.Raw] | None = None
    functions: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = ABSENT
    response_format: Format | None = None
    web_search_options: msgspec.Raw = ABSENT
    search_parameters: msgspec.Raw = ABSENT
    enable_search: msgspec.Raw = ABSENT
    plugins: msgspec.Raw = ABSENT
    prediction: msgspec.Raw = ABSENT


class CompletionBody(Body):
    prompt: str | list[str | int | list[int]] | None = ""
    suffix: str | None = None
    n: int | None = None
    best_of: int | None = None


class EmbeddingBody(NamedModels):
    model: str
    input: str | list[str | int | list[int]]


class OutputPart(Part):
    """`stdout` and `stderr` are what a shell's call wrote."""

    stdout: str | None = None
    stderr: str | None = None


class Item(msgspec.Struct):
    """An input item: a message, a call, a call's output or reasoning, whose content is in different fields. The
    arguments of some calls are an object (`operation` is a patch's), and the output of a computer call is a single
    part. `tools` are offered from there on."""

    role: str = ""
    content: str | list[Part] | None = None
    arguments: object = None
    input: object = None
    operation: object = None
    output: str | list[OutputPart] | OutputPart | None = None
    tools: msgspec.Raw = ABSENT
    type: object = None


class ResponsesText(msgspec.Struct):
    format: Format | None = None


class ResponsesBody(NamedModels):
    model: str
    input: str | list[Item] = ""
    instructions: str | None = None
    stream: bool | None = False
    max_output_tokens: int | None = None
    tools: list[msgspec.Raw] | None = None
    max_tool_calls: msgspec.Raw = ABSENT
    tool_choice: msgspec.Raw = ABSENT
    text: ResponsesText | None = None
    service_tier: str | None = None
    previous_response_id: object = None
    conversation: object = None
    prompt: object = None
    plugins: msgspec.Raw = ABSENT


class InputTokensBody(msgspec.Struct):
    """A Responses request whose input tokens are to be counted."""

    model: str | None = None
    input: str | list[Item] | None = None
    instructions: str | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = ABSENT
    text: ResponsesText | None = None
    previous_response_id: object = None
    conversation: object = None
    prompt: object = None


class Block(msgspec.Struct):
    """An Anthropic content block. The content of tool results and documents may be text, blocks or future forms.
    `tool` is offered from there on: a reference to another one, or a definition."""

    type: str = "text"
    text: str | None = None
    content: object = None
    source: object = None
    input: msgspec.Raw = ABSENT
    tool: msgspec.Raw = ABSENT


class Turn(msgspec.Struct):
    role: str
    content: str | list[Block] | None = None
    """None if a system message only sets the thinking effort from there on."""


class OutputConfig(msgspec.Struct):
    format: Format | None = None


class CountBody(NamedModels, kw_only=True):
    """A Messages request whose tokens are to be counted."""

    model: str
    messages: list[Turn]
    system: str | list[Block] | None = None
    stream: bool | None = False
    tools: list[msgspec.Raw] | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    thread: object = None


class MessagesBody(CountBody, kw_only=True):
    """A Messages request to be answered."""

    max_tokens: int
    speed: object = None
    inference_geo: object = None
    service_tier: object = None
    models: object = None
    preset: object = None
    plugins: msgspec.Raw = ABSENT


AnyBody = ChatBody | CompletionBody | EmbeddingBody | ResponsesBody | InputTokensBody | CountBody
DECODERS: Final[dict[Operation, msgspec.json.Decoder[AnyBody]]] = {
    "chat.completions": msgspec.json.Decoder(ChatBody),
    "completions": msgspec.json.Decoder(CompletionBody),
    "embeddings": msgspec.json.Decoder(EmbeddingBody),
    "responses": msgspec.json.Decoder(ResponsesBody),
    "responses.input_tokens": msgspec.json.Decoder(InputTokensBody),
    "messages": msgspec.json.Decoder(MessagesBody),
    "messages.count_tokens": msgspec.json.Decoder(CountBody),
}


class _Offer(msgspec.Struct):
    definition: msgspec.Raw = ABSENT


_OFFER: Final = msgspec.json.Decoder(_Offer)


def later_tools(body: ResponsesBody | CountBody) -> list[msgspec.Raw]:
    """Tools that are not among the body's own, but defined in its items or blocks."""
    found: list[msgspec.Raw] = []
    if isinstance(body, ResponsesBody):
        for offered in [item.tools for item in body.input if item.tools] if isinstance(body.input, list) else ():
            with suppress(msgspec.DecodeError):  # not a list: the provider will refuse it
                found += VALUES.decode(offered)
        return found
    blocks = [block for turn in body.messages if isinstance(turn.content, list) for block in turn.content]
    for offered in [block.tool for block in blocks if block.tool]:
        with suppress(msgspec.DecodeError):
            found += filter(None, [_OFFER.decode(offered).definition])
    return found


def tier_of(body: AnyBody) -> str | None:
    """The requested service tier. Anthropic's own two are none, as they are billed alike."""
    if isinstance(body, Body):
        return body.service_tier
    if isinstance(body, MessagesBody):
        tier = tier_beside_anthropics(body.service_tier)
        return tier_with_surcharges({"speed": body.speed, "inference_geo": body.inference_geo, "service_tier": tier})
    return body.service_tier if isinstance(body, ResponsesBody) else None
