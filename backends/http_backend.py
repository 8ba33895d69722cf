"""What all HTTP adapters share: send, check the status, return a reply, ask for health.

An adapter adds its paths, its headers, its request body and its readers. Knows no wire format.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from backends.errors import BackendError, UnreadableAnswer, Untranslatable, UpstreamRejected
from backends.http.client import HttpClient
from backends.http.errors import error_from_status, google_status, has_nothing_there
from backends.http.http1_client import Http1Client
from backends.http.reply import (
    MAX_ANSWER_BYTES,
    MAX_ERROR_BYTES,
    KeptReply,
    PlainReply,
    StreamReply,
    TimedResponse,
    Told,
    is_kept,
)
from backends.http.stream_reader import StreamReader
from backends.model_lists import ModelList, parse_model_list
from backends.protocol import JSON, BackendHealth, Call, Chunk, Reply, Timeouts, trace_of

_SECRET_HEADERS: Final = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
_NOT_BY_THIS_MODEL: Final = re.compile(
    rb"(?:support|deprecat|enabled|allowed|available|accept)[^\"]{0,120} (?:with|for|by|on|in) this model\b"
    rb"|this model (?:does not|doesn't|cannot|can't|only) (?:support|accept|allow|take)"
    rb"|model[^\"]{0,80} (?:does not|doesn't) support|does not support (?:tools|thinking|this)\b"
    rb"|unexpected role|turn comes immediately after|roles must alternate|must not be empty"
    rb"|at least one (?:non-empty )?content element|chat[_ ]template|jinja|must alternate|roles are supported"
    rb"|system messages? must be at|invalid chat setting|invalid message role|no user query"
    rb"|(?:system role|developer instruction)[^\"]{0,9} not"
    rb"|reasoning[_. ]?effort|thinking[_ .]?(?:budget|config|level)|only works in thinking mode"
    rb"|tool[ _]choice[^\"]{0,40} (?:requires|is incompatible|does not support)"
    rb"|thinking may not be enabled|may only be set to 1 when"
    rb"|response[_ ](?:format|mime[_ ]type)|tool use with function|cannot be combined with tool"
    rb"|cannot both be specified|range of max_tokens"
    rb"|image_url|not a multimodal model|only supports text|no endpoints (?:found|available)|no allowed providers"
    rb"|max_?(?:completion|output)?_?tokens\b[^\"]{0,120}(?:too large|maximum|equal to|range|must have stream)"
    rb"|cannot be greater than max_model_len|logprobs of \d+, which is greater than max allowed"
    rb"|(?:array|string) too long|(?:does not|should) match pattern|should have at most \d+|maximum number of items"
    rb"|maximum tools limit|too many images|at most \d+ \w+\(s\) may be provided|(?:image|pdf)[^\"]{0,40} exceeds? \d"
    rb"|tool names must be unique|duplicate function declaration"
    rb"|invalid schema(?: for|:) |\binput_schema\b|function_?declaration[^\"]{0,60}(?:name: |schema)"
    rb"|tools\.\d+\.custom: |schemas? (?:contains|is) too|too many strict tools"
    rb"|unknown variant `\w+`, expected `text`|unsupported content\[\]"
    rb"|not a valid moonshot flavored|function name is invalid|invalid part type|parameters is empty"
    rb"|is not supported for model: |reasoning_content is missing|thinking mode must be passed back"
    rb"|should alternate|should be alternating|expected one of: \['str'\]|enable[_ ]thinking[^\"]{0,60}stream"
    rb"|AiError: Bad input: |role in the final position|\"json_validation_error\""
    rb"|\"code\"\s*:\s*(?:\"12(?:10|13|14)\"|20015\b)"
    rb"|failed to initialize samplers|unable to generate parser|logprobs is not supported|Field 'n': value must be"
    rb"|response prefill is|assistant messages at the end|cannot continue an assistant message|prompt must be a string"
    rb"|\"loc\":\[\"body\",\"(?:tools|tool_choice)\"|\('body', '(?:stop|tools|tool_choice)'"
    rb"|'\} support tool (?:calls|messages)\"|\"Request preprocessing failed|requested feature is not supported"
    rb"|\"code\"\s*:\s*\"unsupported_(?:parameter|value)\"|out-of-vocab token|logit_bias must has keys in",
    re.IGNORECASE,
)
"""How providers reject what other models accept: a longer answer, more stop sequences, another effort, more tools,
longer names, other schemas of tools or answers, messages in another order, more or larger pictures, another
vocabulary's tokens, or any. Anthropic, OpenAI, Cloudflare, DashScope, DeepSeek, Fireworks, Gemini, Groq, Kimi,
LitServe, llama.cpp, LM Studio, LMDeploy, MiniMax, Mistral, ModelScope, Ollama, OpenRouter, Perplexity, Ray Serve,
SambaNova, SGLang, Snowflake, vLLM, watsonx, xAI, Xinference, our own engine (by a code of OpenAI's); and DeepInfra,
with 405. Z.ai (1210, 1213, 1214) and SiliconFlow (20015) say no more than that a parameter is wrong."""
_NO_SUCH_MODEL: Final = re.compile(
    rb'"(?:model_not_found|model_decommissioned|model_not_available|model_not_supported|unknown_model|invalid_model)"'
    rb"|model (?:does )?not exist|model not found|(?:unknown|invalid) model\b|is not a valid model"
    rb"|supported API model names|\bmodel \S{1,100} is not supported\. Supported models"
    rb"|model identifier is invalid|on-demand throughput|deployment for this resource does not exist"
    rb"|': Not found for account '|\"Only [^\"]{0,1000} allowed now, your model ",
    re.IGNORECASE,
)
"""How providers say, with any status, that they have no such model, or no longer: Azure, Bedrock, DeepSeek, FastChat
(also while no worker runs), Fireworks, Groq, Mistral, NVIDIA, OpenRouter, Together, Voyage, xAI, Z.ai."""
_UNKNOWN_FIELD: Final = re.compile(
    rb"Unknown parameter: |Unrecognized request argument|property '[^']{1,200}' is unsupported"
    rb"|Extra inputs are not permitted|extra_forbidden|Unknown name [^:]{1,200}: Cannot find field"
    rb"|Unexpected fields in the request: |json: unknown field |unknown field: parameter '|Extra parameters \['"
    rb"|Unrecognized key\(s\) in object|Unsupported parameter\(s\): ",
    re.IGNORECASE,
)
"""How OpenAI, Anthropic, Azure AI Foundry, Cohere, Databricks, Groq and Cerebras, Fireworks, Mistral, Gemini's
compatible endpoint, NVIDIA, `transformers serve` and Venice reject unknown fields such as `top_k`, `min_p` or
`thinking`, which a caller may send whichever model is chosen."""
_NAMES_US: Final = re.compile(rb"': Not found for account '")
"""Of NVIDIA's."""
_HEALTH_TIMEOUTS = Timeouts(connect_seconds=2.0, first_byte_seconds=5.0, idle_seconds=2.0)
_LIST_TIMEOUTS = Timeouts(first_byte_seconds=20.0, idle_seconds=10.0)


def as_it_is(status: int, body: bytes) -> int:
    """The status unchanged, for providers whose status is right."""
    del body
    return status


class Exchange(msgspec.Struct, frozen=True):
    """One request in a wire format, and how to read its answer."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    read_answer: Callable[[bytes], Chunk]
    stream_reader: Callable[[], StreamReader]
    translate_error: Callable[[bytes], bytes] = bytes
    """Turns the body of a rejection into the caller's format."""
    true_status: Callable[[int, bytes], int] = as_it_is
    """What the status should have been, for providers that hide the reason in the body."""
    content_type: str = JSON
    """The content type that the caller gets for a whole answer."""
    may_be_whole: bool = False
    """A stream was requested, but a whole answer is fine too and is passed on."""
    read_stream: Callable[[TimedResponse, str, Told], Reply] | None = None
    """Reads a stream that may not be SSE, by its content type."""


class HttpBackend:
    """Base of the adapters over HTTP, at one base URL with the same headers on every call.

    Raises ValueError for a base URL that is not plain http(s), or a key that cannot stand in a header.
    """

    is_simulated = False

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Mapping[str, str],
        *,
        client: HttpClient | None = None,
    ) -> None:
        self._name = name
        self._base_url = check_base_url(base_url)
        self._headers = checked_headers({"content-type": "application/json", **headers})
        self._client: HttpClient = client or Http1Client(name)

    @property
    def name(self) -> str:
        return self._name

    async def aclose(self) -> None:
        await self._client.aclose()

    async def exchange(self, call: Call, exchange: Exchange) -> Reply:
        """Send one call and return its reply once the status is known to be good."""
        sent = {**exchange.headers, **trace_of(call)} if call.headers else exchange.headers
        response = await self._send("POST", exchange.url, sent, exchange.body, call.timeouts)
        try:
            if not 200 <= response.status < 300:
                # Not stored in a variable: the traceback would keep our frame, and with it the request's whole body.
                raise await self._refusal(response, call, exchange, sent)
            kind = response.headers.get("content-type", "") if call.is_stream else JSON
            if not kind.startswith(JSON):
                told = partial(_as_told, call.upstream_model, sent, exchange.translate_error)
                if exchange.read_stream is not None:
                    stream = exchange.read_stream(response, kind, told)
                else:
                    stream = StreamReply(response, exchange.stream_reader(), self._name, told=told)
                return KeptReply(stream) if is_kept(response.headers) else stream
            try:
                chunk = exchange.read_answer(await response.read_all(MAX_ANSWER_BYTES))
            except UpstreamRejected as refusal:
                raise _as_told(call.upstream_model, sent, exchange.translate_error, refusal, refusal.body) from None
            if call.is_stream and not exchange.may_be_whole:
                message = f"{self._name} answered without a stream"
                raise UnreadableAnswer(message, usage=chunk.usage, output_characters=chunk.output_characters)
        except BaseException:
            response.close(is_complete=False)
            raise
        response.close(is_complete=True)
        reply = PlainReply(chunk, exchange.content_type)
        return KeptReply(reply) if is_kept(response.headers) else reply

    async def _refusal(
        self, response: TimedResponse, call: Call, exchange: Exchange, sent: Mapping[str, str]
    ) -> BackendError:
        body = await self._error_body(response)
        status = exchange.true_status(response.status, body)
        error = error_from_status(status, response.headers, body, backend=self._name)
        if not isinstance(error, UpstreamRejected):
            return error
        return _as_told(call.upstream_model, sent, exchange.translate_error, error, body)

    async def get(self, url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of a small page, within a few seconds. Raises BackendError."""
        status, _, body = await self.ask("GET", url, headers, timeouts=_HEALTH_TIMEOUTS, limit=MAX_ERROR_BYTES)
        return status, body

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], *, timeouts: Timeouts, limit: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of a request that is not a call. Raises BackendError."""
        response = await self._send(method, url, headers, b"" if method == "POST" else None, timeouts)
        try:
            return response.status, response.headers, await response.read_all(limit)
        finally:
            response.close(is_complete=False)

    async def probe(
        self, url: str, headers: Mapping[str, str], read: Callable[[int, bytes], BackendHealth]
    ) -> BackendHealth:
        """Health as `read` understands that page; an unreachable backend is unhealthy, never an error."""
        try:
            return read(*await self.get(url, headers))
        except BackendError as error:
            return BackendHealth(False, error.message)

    async def model_lists(self) -> Sequence[ModelList]:
        """See ListsModels. A list that is also served without our key proves nothing about the key."""
        secrets = {name for name in self._headers if name in _SECRET_HEADERS}
        found = await self._model_list(self._headers)
        if found.problem or not secrets:
            return (found,)
        without = {name: value for name, value in self._headers.items() if name not in secrets}
        stranger = await self._model_list(without)
        return (replace(found, is_public=not stranger.problem),)

    async def _model_list(self, headers: Mapping[str, str]) -> ModelList:
        url = join_url(self._base_url, "models")
        try:
            status, _, body = await self.ask("GET", url, headers, timeouts=_LIST_TIMEOUTS, limit=MAX_ANSWER_BYTES)
        except BackendError as error:
            return ModelList(problem=f"{url}: {error.message}")
        return parse_model_list(google_status(status, body), body, url=url)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeouts: Timeouts
    ) -> TimedResponse:
        started_at = asyncio.get_running_loop().time()
        response = await self._client.send(method, url, headers, body, timeouts=timeouts)
        return TimedResponse(response, self._name, timeouts, started_at)

    async def _error_body(self, response: TimedResponse) -> bytes:
        """The body of an error, or nothing if it is incomplete: the status is enough. Xiaomi's MiMo tells the error of
        a stream as an event, though with status 400 and as no stream."""
        try:
            return (await response.read_all(MAX_ERROR_BYTES)).removeprefix(b"data:")
        except BackendError:
            return b""


def _as_told(
    model: str,
    sent: Mapping[str, str],
    translate_error: Callable[[bytes], bytes],
    error: UpstreamRejected,
    body: bytes,
) -> UpstreamRejected:
    """A refusal, by its status or inside a 200, as its caller may hear it."""
    told = where_another_may_do(error, body, model)
    told.usage = error.usage
    if told.body:
        told.body = b"" if _quotes_secret(body, sent) else translate_error(body)
    return told


def where_another_may_do(error: UpstreamRejected, body: bytes, model: str) -> UpstreamRejected:
    """The error itself, or Untranslatable if another model or server may answer."""
    if _is_unknown_model(error.status or 0, body, model):
        message = f"{error.message}: it does not know the model"
        body = b"" if _NAMES_US.search(body) else body
    elif error.status in (400, 404, 405, 422) and _NOT_BY_THIS_MODEL.search(body):
        message = f"{error.message}: the model does not support what was requested"
    elif error.status in (400, 422) and _UNKNOWN_FIELD.search(body):
        message = f"{error.message}: it does not know a field of the request"
    elif has_nothing_there(error.status or 0, body):
        message = (
            f"{error.message}: there is nothing at the requested address. Either it does not offer this endpoint, "
            "or its base_url in breakeven.yaml is wrong (most end in /v1)"
        )
        body = b""
    else:
        return error
    status = 404 if error.status in (None, 501) else error.status  # a client's library repeats what ends in 5xx
    return Untranslatable(message, status=status, body=body)


def _is_unknown_model(status: int, body: bytes, model: str) -> bool:
    """Whether the provider lacks the model: not the fault of a caller who was routed there."""
    return _NO_SUCH_MODEL.search(body) is not None or (status in (404, 410) and model.encode() in body)


def _quotes_secret(body: bytes, sent: Mapping[str, str]) -> bool:
    """Whether an error body repeats our key, and so must not reach the caller."""
    secrets = (sent[name].rpartition(" ")[2] for name in _SECRET_HEADERS if name in sent)
    return any(secret.encode() in body for secret in secrets if secret)


def answers_ok(status: int, body: bytes) -> BackendHealth:
    """Healthy when the page came with 2xx."""
    del body
    return BackendHealth(200 <= status < 300, "" if 200 <= status < 300 else f"health answered {status}")


def join_url(base_url: str, path: str) -> str:
    """`base_url` without its trailing slash, then `path`."""
    return f"{base_url.rstrip('/')}/{path.lstrip('/')}"


def check_base_url(base_url: str) -> str:
    """The URL itself. Raises ValueError unless it is http(s) with a host and without credentials, query or fragment."""
    scheme, separator, rest = base_url.partition("://")
    host = rest.partition("/")[0]
    if scheme not in ("http", "https") or not separator or not host:
        raise ValueError(f"not an http or https address: {base_url!r}")
    if "@" in host or "?" in rest or "#" in rest:
        raise ValueError("a base URL has no credentials, query or fragment")
    return base_url


def origin_of(url: str) -> str:
    """Scheme, host and port."""
    return "/".join(url.split("/", 3)[:3])


def checked_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers themselves. Raises ValueError, without showing the value, where a value is not printable ASCII."""
    for key, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value of header {key!r} has characters that a header cannot carry")
    return headers
