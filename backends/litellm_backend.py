"""Adapter for the long tail of providers (Azure, Bedrock, Vertex, ...) through litellm, which only this file imports.

litellm costs 3 to 7 s and 180 MB to import and milliseconds of CPU per call, so it is imported in a thread, on the
first call of a backend that was configured to use it. Only known chat fields reach it: it takes addresses and
credentials as arguments beside them, and a caller must not be able to set those. Nor may a caller make it fetch what a
message names by its address: it would do so from here, and for some providers without a limit on the size.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Protocol, cast

import msgspec
from msgspec.structs import replace

from backends.errors import (
    BackendError,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.formats.anthropic import REFUSAL
from backends.formats.chat_fields import parse_object, untranslatable
from backends.formats.gemini import tier_that_answered
from backends.formats.json_objects import decode_object, first_of, objects_of, part_of
from backends.formats.named_addresses import PICTURE, addresses_in
from backends.formats.openai import OpenAIStreamReader, read_answer
from backends.formats.past_thinking import DETAILS, details_of
from backends.formats.refused_fields import OfEffort, may_be_repeated, of_effort, refused_field, without_refused
from backends.formats.strict_turns import mended_chat
from backends.http.reply import PlainReply
from backends.learned import Learned
from backends.litellm_errors import broken, translated
from backends.protocol import BackendHealth, Call, Chunk, Reply, trace_of
from backends.usage import Usage

CHAT_FIELDS: Final = frozenset(
    {
        "messages",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "service_tier",
        "stop",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
TAKE_ADDRESSES: Final = frozenset(
    {
        "azure",
        "fireworks_ai",
        "groq",
        "hosted_vllm",
        "mistral",
        "openai",
        "openrouter",
        "perplexity",
        "together_ai",
        "xai",
    }
)
"""litellm's prefixes of providers that get a picture's address as it is; for the others litellm fetches the picture, or
may one day."""
NOT_AS_BILLED: Final = (
    *("cohere/", "cohere_chat/"),  # these with what Cohere adds to the prompt, and does not bill
    *("replicate/", "sagemaker/", "predibase/", "petals/", "a2a/", "langgraph/", "langflow/"),
    *("azure_ai/agents/", "bedrock/agentcore/", "vertex_ai/agent_engine/"),
)
"""Prefixes of models whose usage is litellm's own count, since their servers report no tokens, or not always."""
VERTEX_TIER: Final = "x-vertex-ai-llm-shared-request-type"
"""The header in which Vertex takes a service tier."""
REFUSED: Final = re.compile(rb'"stop_reason":\s*"refusal"')
TWICE_IN_STREAMS: Final = re.compile(r"bedrock/.*\bopenai\.")
"""Models in whose input Bedrock's ConverseStream, unlike Converse, counts what was read from and written to the cache.
litellm adds that once more. It uses ConverseStream if there are tools, for one."""
Complete = Callable[..., Awaitable[object]]


class _Model(Protocol):
    """What we use of litellm's answers and their pieces."""

    def model_dump_json(self, *, exclude_none: bool) -> str: ...


class LitellmBackend:
    """One deployment. `settings` are litellm's own arguments (`api_key`, `api_base`, `api_version`, `aws_region_name`,
    ...); `upstream_model` of a call carries litellm's prefix, as in `azure/my-deployment`. `complete` stands in for
    `litellm.acompletion` in tests."""

    is_simulated = False

    def __init__(
        self, name: str, *, settings: Mapping[str, object] | None = None, complete: Complete | None = None
    ) -> None:
        self._name = name
        self._settings = dict(settings or {})
        self._complete = complete
        self._refused = Learned[OfEffort, frozenset[str]]()

    @property
    def name(self) -> str:
        return self._name

    async def open(self, call: Call) -> Reply:
        """Asks again without fields that the model refuses, and later chats too: litellm leaves out what models refuse
        by their names, and a deployment may have its own. Once with messages that it takes."""
        if call.operation != "chat.completions":
            raise untranslatable("operation", f"{self._name} does not offer {call.operation}")
        key = of_effort(call.upstream_model, call.body)
        known = self._refused.get(key) or frozenset[str]()
        asked, refused, is_mended = replace(call, body=without_refused(call.body, known)), known, False
        while True:
            try:
                reply = await self._open(asked)
                break
            except UpstreamRejected as refusal:
                name = refused_field(refusal.body)
                if name is not None and (kept := without_refused(asked.body, (name,))) != asked.body:
                    refused |= {name}
                elif not is_mended and (changed := mended_chat(asked.body, refusal.body)) is not None:
                    kept, is_mended = changed, True
                else:
                    raise
            asked = replace(call, body=kept)
        if refused != known and not may_be_repeated(call.body):
            self._refused.put(key, refused)
        return reply

    async def _open(self, call: Call) -> Reply:
        complete = self._complete or await asyncio.to_thread(_import_litellm)
        self._complete = complete
        begins_by = asyncio.get_running_loop().time() + call.timeouts.first_byte_seconds
        try:
            async with asyncio.timeout_at(begins_by):
                answer = await complete(**self._arguments(call))
        except BackendError:
            raise
        except Exception as error:
            raise translated(error, call, backend=self._name) from error
        if call.is_stream:
            return _LitellmReply(cast(AsyncIterator[_Model], answer), call, self._name, begins_by)
        document = _with_tier(_json(answer), _tier_beside(answer))
        chunk = _without_other_counts(read_answer(document, backend=self._name), call)
        return PlainReply(_unbilled(chunk) if _is_refusal(document) else chunk)

    async def health(self) -> BackendHealth:
        return BackendHealth(True, "not probed")

    async def aclose(self) -> None:
        return None

    def _arguments(self, call: Call) -> dict[str, object]:
        fields = parse_object(call.body)
        self._refuse_fetching(fields.get("messages"), call.upstream_model)
        if _has_no_such_tier(call.upstream_model, fields.get("service_tier")):
            del fields["service_tier"]
        stream: dict[str, object] = (
            {"stream": True, "stream_options": {"include_usage": True}} if call.is_stream else {}
        )
        trace: dict[str, object] = {}
        if found := trace_of(call):
            configured = cast(Mapping[str, str], self._settings.get("extra_headers") or {})
            trace["extra_headers"] = {**configured, **found}
        return {
            **{name: _uncarried(value) for name, value in fields.items() if name in CHAT_FIELDS},
            **stream,
            **self._settings,
            **trace,
            "model": call.upstream_model,
            "timeout": call.timeouts.first_byte_seconds,
            "drop_params": True,
            "max_retries": 0,
            "num_retries": 0,
            "_skip_mcp_handler": True,  # else 1.106.2 imports `mcp` for any tools, and asks servers for a caller's
        }

    def _refuse_fetching(self, messages: object, upstream_model: str) -> None:
        takes = {PICTURE} if upstream_model.partition("/")[0] in TAKE_ADDRESSES else set[str]()
        for name in set(addresses_in(messages)) - takes:
            raise untranslatable("messages", f"{name} is an address, which {self._name} cannot take; send it as base64")


class _LitellmReply:
    content_type = "text/event-stream"

    def __init__(self, pieces: AsyncIterator[_Model], call: Call, backend: str, begins_by: float) -> None:
        self._pieces = pieces
        self._begins_by = begins_by
        self._call = call
        self._backend = backend
        self._reader = OpenAIStreamReader(backend, wants_usage_chunk=call.wants_usage_chunk)
        self._is_unreported = self._is_refused = self._has_output = False
        self._tier: str | None = None

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        reader, idle_seconds = self._reader, self._call.timeouts.idle_seconds
        while True:
            try:
                async with asyncio.timeout(idle_seconds) if reader.is_started else asyncio.timeout_at(self._begins_by):
                    piece = await anext(self._pieces, None)
            except Exception as error:
                raise broken(error, self._call, backend=self._backend, is_started=reader.is_started) from error
            self._tier = self._tier or _tier_beside(piece)
            document = None if piece is None else _with_tier(self._as_reported(_json(piece)), self._tier)
            if document is not None and not self._has_output and _is_refusal(document):
                self._is_refused = True
            for chunk in reader.end() if document is None else reader.read(document):
                counted = _uncounted(chunk) if self._is_unreported else chunk
                counted = _counted_once(_without_other_counts(counted, self._call), document, self._call)
                self._has_output = self._has_output or counted.has_output
                yield _unbilled(counted) if self._is_refused else counted
            if document is None:
                return

    def _as_reported(self, document: bytes) -> bytes:
        """The piece with the usage that the provider reported. litellm ends a stream with a new usage: the sum of
        those in the pieces that it keeps, with nothing but their tokens, or if there were none its own count."""
        pieces: object = getattr(self._pieces, "chunks", None)
        if b'"usage"' not in document or not isinstance(pieces, list):
            return document
        usages = (getattr(piece, "usage", None) for piece in cast(list[object], pieces))
        reported = [usage for usage in usages if usage is not None]
        self._is_unreported = not reported
        fields = decode_object(document)
        if fields is None or len(reported) != 1:
            return document
        return msgspec.json.encode(fields | {"usage": msgspec.Raw(_json(reported[0]))})

    async def aclose(self) -> None:
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()


def _is_refusal(document: bytes) -> bool:
    """Whether Claude refused before any output, which newer litellms (1.110.2, not 1.106.2) tell from other filtered
    answers. The reason that it gives is no output."""
    if not REFUSED.search(document):
        return False
    choice = first_of((decode_object(document) or {}).get("choices"))
    said = part_of(choice, "message") or part_of(choice, "delta")
    if part_of(said, "provider_specific_fields").get("stop_reason") != REFUSAL:
        return False
    return not any(said.get(name) for name in ("content", "reasoning_content", "tool_calls"))


def _unbilled(chunk: Chunk) -> Chunk:
    """Its counts are for information, as in billed() of formats/anthropic.py."""
    return replace(chunk, usage=chunk.usage and Usage(), has_output=False, output_characters=0)


def _without_other_counts(chunk: Chunk, call: Call) -> Chunk:
    return _uncounted(chunk) if call.upstream_model.startswith(NOT_AS_BILLED) else chunk


def _uncounted(chunk: Chunk) -> Chunk:
    return replace(chunk, usage=None, usage_so_far=None)


def _counted_once(chunk: Chunk, document: bytes | None, call: Call) -> Chunk:
    usage = chunk.usage
    if usage is None or document is None or not TWICE_IN_STREAMS.match(call.upstream_model):
        return chunk
    cache = usage.cached_input_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    if not 0 < 2 * cache <= usage.input_tokens or not _is_from_converse(document):
        return chunk
    return replace(chunk, usage=replace(usage, input_tokens=usage.input_tokens - cache, is_estimated=True))


def _is_from_converse(document: bytes) -> bool:
    """Else the usage is OpenAI's own."""
    usage = part_of(decode_object(document) or {}, "usage")
    return "text_tokens" in part_of(usage, "prompt_tokens_details")


def _uncarried(value: object) -> object:
    """Messages without reasoning that callers keep for another model; anything else as it is."""
    messages = objects_of(value)
    if not any(details_of(message) for message in messages):
        return value
    return [{name: said for name, said in message.items() if name != DETAILS} for message in messages]


def _has_no_such_tier(model: str, asked: object) -> bool:
    """Vertex takes a tier in its headers alone. For `auto`, everybody's default, litellm asks Gemini for `priority`,
    which costs 1.8 times as much."""
    return asked is not None and (model.startswith("vertex_ai/") or (model.startswith("gemini/") and asked == "auto"))


def tier_asked(settings: Mapping[str, object]) -> str | None:
    """The service tier that a block's settings ask for, at Vertex by a header."""
    headers, said = settings.get("extra_headers"), settings.get("service_tier")
    named = cast(Mapping[str, str], headers) if isinstance(headers, Mapping) else {}
    by_header = next((value for name, value in named.items() if name.lower() == VERTEX_TIER), None)
    return by_header or (said if isinstance(said, str) else None)


def _tier_beside(answer: object) -> str | None:
    """The tier that answered at Vertex, which litellm keeps beside an answer, and beside all pieces but the last."""
    hidden: object = getattr(answer, "_hidden_params", None)
    beside = part_of(cast(dict[str, object], hidden), "provider_specific_fields") if isinstance(hidden, dict) else {}
    return tier_that_answered({"trafficType": beside.get("traffic_type")})


def _with_tier(document: bytes, tier: str | None) -> bytes:
    fields = None if tier is None else decode_object(document)
    return document if fields is None else msgspec.json.encode({"service_tier": tier} | fields)


def _json(model: object) -> bytes:
    return cast(_Model, model).model_dump_json(exclude_none=True).encode()


def _import_litellm() -> Complete:
    """Raises UpstreamUnavailable with the remedy when litellm is not installed."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import asks the network for prices
    try:
        import litellm
    except ImportError as error:
        raise UpstreamUnavailable("litellm is not installed: pip install 'breakeven[litellm]'") from error
    litellm.suppress_debug_info = True
    return cast(Complete, litellm.acompletion)
