"""View of a body for the decision: some of its fields. The bytes themselves are passed on unchanged."""

from itertools import compress

import msgspec

from backends.endpoints.messages_blocks import without_billing_line
from backends.endpoints.responses_compaction import ASK, TRIGGER
from backends.protocol import Operation
from backends.usage import NO_UNITS, Units
from classifier.protocol import Conversation
from gateway.errors import InvalidRequest
from gateway.request.bodies import (
    DECODERS,
    AnyBody,
    Block,
    ChatBody,
    CompletionBody,
    CountBody,
    EmbeddingBody,
    InputTokensBody,
    Item,
    MessagesBody,
    ResponsesBody,
    later_tools,
    tier_of,
)
from gateway.request.encodings import unreadable
from gateway.request.field_checks import checked_choices, checked_limit, invalid_field
from gateway.request.hosted_tools import NO_TOOLS, HostedTools, hosted_tools
from gateway.request.many_values import require_bearable
from gateway.request.marks import Marks
from gateway.request.metering import CHARACTERS_PER_TOKEN
from gateway.request.texts import (
    IMAGES,
    image_bytes,
    image_bytes_of_blocks,
    is_media,
    is_open_ended,
    item_parts,
    item_texts,
    said,
    texts_of,
    with_shown,
)
from gateway.request.turns import Reuse, conversation_of, prefixes, reuse_of
from gateway.routing.rules import AUTO, EMBEDDINGS
from gateway.upstreams.prompt_prefixes import Prefix

TOKENS_PER_IMAGE = 1_000
NEEDS = ("streaming", "tools", "json_schema", "vision", "audio")
NEW_THREAD = {"type": "create"}


class RequestView(msgspec.Struct, frozen=True):
    """What admission, classification and the decision use.

    `longest_prompt_tokens` is 0 unless there are several prompts. The fields from `service_tier` on bound the cost:
    where there are `marks`, these tell whether the body writes a cache or has media, and only prices that differ for
    these have it searched; `body_bytes` is the whole body without its images, and an open-ended body refers to
    files or to what its provider stores. `prefixes` recognise the conversation's next turn; `reuse` is the part of a
    chat's prompt that may be sent again, for marking it in a provider's cache. For models that do not write text
    (media_views.py), `output_tokens` and `units` are expected values. The `most_*` fields bound the cost; if None, the
    other fields do. Tokens of a `prediction` are read as input, and billed as output where they turn out wrong.
    """

    operation: Operation
    model: str
    is_stream: bool = False
    wants_usage_chunk: bool = True
    max_output_tokens: int | None = None
    choices: int = 1
    needs: tuple[str, ...] = ()
    conversation: Conversation = Conversation(last_user="")
    input_tokens: int = 0
    longest_prompt_tokens: int = 0
    service_tier: str | None = None
    writes_cache: bool = True
    has_media: bool = True
    marks: Marks | None = None
    hosted_tools: HostedTools = NO_TOOLS
    image_bytes: int = 0
    body_bytes: int = 0
    is_open_ended: bool = False
    prefixes: tuple[Prefix, ...] = ()
    reuse: Reuse | None = None
    output_tokens: int = 0
    predicted_tokens: int = 0
    most_input_tokens: int | None = None
    most_output_tokens: int | None = None
    units: Units = NO_UNITS
    most_units: Units = NO_UNITS

    @property
    def may_write_cache(self) -> bool:
        return self.writes_cache and (self.marks is None or self.marks.may_write_cache)

    @property
    def may_have_media(self) -> bool:
        return self.has_media and (self.marks is None or self.marks.may_have_media)


def parse_request(operation: Operation, body: bytes) -> RequestView:
    """Parses a JSON body. Raises InvalidRequest naming the invalid field."""
    require_bearable(body)
    try:
        parsed = DECODERS[operation].decode(body)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(body, error) from error
    view = _view(parsed)
    return msgspec.structs.replace(
        view,
        service_tier=tier_of(parsed),
        marks=Marks(body),
        hosted_tools=hosted_tools(parsed, body),
        body_bytes=len(body) - view.image_bytes,
    )


def _view(parsed: AnyBody) -> RequestView:
    if isinstance(parsed, ChatBody):
        return _view_chat(parsed)
    if isinstance(parsed, CompletionBody):
        return _view_completion(parsed)
    if isinstance(parsed, ResponsesBody):
        return _view_responses(parsed)
    if isinstance(parsed, InputTokensBody):
        return _view_input_tokens(parsed)
    if isinstance(parsed, CountBody):
        return _view_messages(parsed)
    return _view_embedding(parsed)


def _view_chat(body: ChatBody) -> RequestView:
    if not body.messages:
        raise InvalidRequest("messages: needs at least one message.", param="messages")
    images = audio = images_length = called = 0
    has_files = False
    texts: list[str] = []
    turns: list[tuple[str, str]] = []
    for message in body.messages:
        content = message.content
        if isinstance(content, list):
            images += sum(part.type in ("image_url", "input_image") for part in content)
            audio += sum(part.type == "input_audio" for part in content)
            images_length += image_bytes(content)
            has_files = has_files or is_open_ended(content)
            content = "\n".join(texts_of(content))
        texts.append(content or "")
        turns.append((message.role, content or ""))
        for call in (message.tool_calls, message.function_call):
            called += len(memoryview(call)) if call else 0
    tools = [*(body.tools or ()), *(body.functions or ())]
    wants_json = body.response_format is not None and body.response_format.type != "text"
    tool_tokens = sum(len(bytes(tool)) for tool in tools) // 4 if tools else 0
    schema_tokens = body.response_format.tokens if body.response_format is not None else 0
    predicted = len(memoryview(body.prediction)) // 4 if body.prediction else 0
    limit = checked_limit("max_completion_tokens", body.max_completion_tokens)
    other = checked_limit("max_tokens", body.max_tokens)
    if limit is None or (other is not None and other > limit):  # if both are given, the provider decides which counts
        limit = other
    return RequestView(
        operation="chat.completions",
        model=body.model,
        is_stream=bool(body.stream),
        wants_usage_chunk=bool(body.stream_options and body.stream_options.include_usage),
        max_output_tokens=limit,
        choices=checked_choices("n", body.n),
        needs=needs_of(
            streaming=bool(body.stream),
            tools=bool(tools),
            json_schema=body.response_format is not None and body.response_format.has_schema,
            vision=images > 0,
            audio=audio > 0,
        ),
        conversation=conversation_of(turns, tools=len(tools), images=images, wants_json=wants_json),
        input_tokens=estimate_tokens(texts)
        + 4 * len(turns)
        + called // 4
        + tool_tokens
        + images * TOKENS_PER_IMAGE
        + schema_tokens
        + predicted,
        predicted_tokens=predicted,
        image_bytes=images_length,
        is_open_ended=has_files,
        prefixes=(known := prefixes(turns, tools)),
        reuse=reuse_of(turns, known, tool_tokens, body.tool_choice),
    )


def _view_completion(body: CompletionBody) -> RequestView:
    texts, tokens = _plain_input(body.prompt or "")
    prompts = [one for one in body.prompt if not isinstance(one, int)] if isinstance(body.prompt, list) else []
    suffix_tokens = estimate_tokens([body.suffix]) if body.suffix else 0
    longest = max(map(_prompt_tokens, prompts)) + suffix_tokens if len(prompts) > 1 else 0
    return RequestView(
        operation="completions",
        model=body.model,
        is_stream=bool(body.stream),
        wants_usage_chunk=bool(body.stream_options and body.stream_options.include_usage),
        max_output_tokens=checked_limit("max_tokens", body.max_tokens or None),  # 0 with echo scores the prompt
        choices=max(checked_choices("n", body.n), checked_choices("best_of", body.best_of)) * max(len(prompts), 1),
        needs=needs_of(streaming=bool(body.stream)),
        conversation=Conversation(last_user="\n".join(texts)),
        input_tokens=tokens + suffix_tokens,
        longest_prompt_tokens=longest,
    )


def _prompt_tokens(prompt: str | list[int]) -> int:
    return estimate_tokens([prompt]) if isinstance(prompt, str) else len(prompt)


def _view_embedding(body: EmbeddingBody) -> RequestView:
    texts, tokens = _plain_input(body.input)
    return RequestView(
        operation=EMBEDDINGS,
        model=body.model,
        wants_usage_chunk=False,
        conversation=Conversation(last_user="\n".join(texts)),
        input_tokens=tokens,
        most_output_tokens=0,
    )


def _role(item: Item) -> str:
    return item.role or ("user" if item.type == "agent_message" else "tool")


def _view_responses(body: ResponsesBody) -> RequestView:
    items = [Item("user", body.input)] if isinstance(body.input, str) else body.input
    if body.instructions:
        items = [Item("system", body.instructions), *items]
    turns = [(_role(item), "\n".join(item_texts(item))) for item in items]
    parts = [part for item in items for part in item_parts(item)]
    kinds = [part.type for part in parts]
    images, tools = sum(kind in IMAGES for kind in kinds), [*(body.tools or ()), *later_tools(body)]
    tool_tokens = sum(len(bytes(tool)) for tool in tools) // 4
    asked = [ASK] if items and items[-1].type == TRIGGER else []
    form = body.text.format if body.text is not None else None
    wanted = form.type if form is not None else "text"
    return RequestView(
        operation="responses",
        model=body.model,
        is_stream=bool(body.stream),
        max_output_tokens=checked_limit("max_output_tokens", body.max_output_tokens),
        needs=needs_of(
            streaming=bool(body.stream),
            tools=bool(tools),
            json_schema=wanted == "json_schema",
            vision=images > 0,
            audio="input_audio" in kinds,
        ),
        conversation=conversation_of(turns, tools=len(tools), images=images, wants_json=wanted != "text"),
        input_tokens=estimate_tokens([text for _, text in turns] + asked)
        + 4 * len(turns)
        + tool_tokens
        + (form.tokens if form is not None else 0)
        + images * TOKENS_PER_IMAGE,
        image_bytes=image_bytes(parts),
        is_open_ended=is_open_ended(parts) or any((body.previous_response_id, body.conversation, body.prompt)),
        prefixes=(known := prefixes(turns, body.tools or [])),
        reuse=reuse_of(turns, known, tool_tokens, body.tool_choice),
    )


def _view_input_tokens(body: InputTokensBody) -> RequestView:
    asked = ResponsesBody(
        AUTO if body.model is None else body.model,
        body.input or "",
        body.instructions,
        tools=body.tools,
        tool_choice=body.tool_choice,
        text=body.text,
        previous_response_id=body.previous_response_id,
        conversation=body.conversation,
        prompt=body.prompt,
    )
    return msgspec.structs.replace(_view_responses(asked), operation="responses.input_tokens")


def _view_messages(body: CountBody) -> RequestView:
    if not body.messages:
        raise InvalidRequest("messages: needs at least one message.", param="messages")
    system = [Block(text=body.system)] if isinstance(body.system, str) else body.system or []
    asked = without_billing_line("\n".join(block.text for block in system if block.text))
    turns = [("system", asked)] if system else []
    turns += [text for turn in body.messages for text in said(turn)]
    blocks = [block for turn in body.messages if isinstance(turn.content, list) for block in turn.content]
    media = [block for block in with_shown(blocks) if is_media(block)]
    images = len(media)
    wanted = (body.output_config and body.output_config.format) or body.output_format
    wants_json = wanted is not None and wanted.type == "json_schema"
    tools = [*(body.tools or ()), *later_tools(body)]
    is_answered = isinstance(body, MessagesBody)
    return RequestView(
        operation="messages" if is_answered else "messages.count_tokens",
        model=body.model,
        is_stream=bool(body.stream) and is_answered,
        # 0 fills Anthropic's prompt cache.
        max_output_tokens=checked_limit("max_tokens", body.max_tokens, least=0)
        if isinstance(body, MessagesBody)
        else None,
        needs=needs_of(
            streaming=bool(body.stream) and is_answered,
            tools=bool(tools),
            json_schema=wants_json,
            vision=any(block.type == "image" for block in media),
        ),
        conversation=conversation_of(turns, tools=len(tools), images=images, wants_json=wants_json),
        input_tokens=estimate_tokens([text for _, text in turns])
        + 4 * len(turns)
        + sum(len(bytes(raw)) for raw in (*tools, *(block.input for block in blocks))) // 4
        + (wanted.tokens if wanted is not None else 0)
        + images * TOKENS_PER_IMAGE,
        image_bytes=image_bytes_of_blocks(blocks),
        is_open_ended=any(block.type == "document" for block in media) or body.thread not in (None, NEW_THREAD),
        prefixes=prefixes(turns, body.tools or []),
    )


def _plain_input(value: str | list[str | int | list[int]]) -> tuple[list[str], int]:
    if isinstance(value, str):
        return [value], estimate_tokens([value])
    texts = [item for item in value if isinstance(item, str)]
    tokens = sum(len(item) if isinstance(item, list) else 1 for item in value if not isinstance(item, str))
    return texts, estimate_tokens(texts) + tokens


def needs_of(
    *, streaming: bool, tools: bool = False, json_schema: bool = False, vision: bool = False, audio: bool = False
) -> tuple[str, ...]:
    if not (tools or json_schema or vision or audio):  # as most requests
        return ("streaming",) if streaming else ()
    return tuple(compress(NEEDS, (streaming, tools, json_schema, vision, audio)))


def estimate_tokens(texts: list[str]) -> int:
    """An estimate without a tokenizer: four characters per token, and fewer for scripts beyond ASCII.

    Used for admission, context windows and expected cost; what is charged is the provider's own count.
    """
    total = 0.0
    for text in texts:
        total += len(text) / CHARACTERS_PER_TOKEN
        if not text.isascii():
            total += (len(text.encode("utf-8", "surrogatepass")) - len(text)) / 4
    return int(total) + 1
