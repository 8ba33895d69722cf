"""Maps an upstream's HTTP status, headers and error body to our error tree, by one table for every wire format.

No message made here quotes the upstream's text: providers echo prompts and keys in it, and messages reach the logs.
The body itself travels only inside UpstreamRejected, for the caller whose request it was.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.http.retry_after import parse_retry_after, retry_delay_in
from backends.usage import Usage

_IDENTIFIER: Final = re.compile(r"[a-z][a-z_]{2,47}")
TOO_LONG: Final = "context_length_exceeded"
"""OpenAI's error code, which clients check for before they shorten a conversation."""
_FILTERED: Final = re.compile(
    rb"usage guidelines|safety_check|requires moderation|flagged_input|(?:input|prompt|content)[^\"]{0,20} flagged"
    rb"|content[ _-]?(?:policy|filter|moderation)|policy_violation|\"refusal\"|request blocked: ",
    re.IGNORECASE,
)
"""How xAI, OpenRouter and compatible servers word a 403 that concerns the prompt, not the key."""
_OUR_ACCOUNT: Final = re.compile(
    r"your credit balance is too low|you have reached your specified api usage limits|incorrect api key provided"
    r"|user location is not supported|your team \S{1,80} has either used all|arrearage|billing_not_active"
    r"|this organization has been disabled|organization_restricted|your project has exceeded its monthly spending cap"
    r"|gemini api free tier is not available|billing_hard_limit_reached"
    r"|exceeded_current_quota_error|insufficient_quota|precondition_failed|1113$|insufficient balance \(1008\)"
    r"|you have used up your daily free allocation|your prepayment credits are depleted|budget_exceeded$"
    r"|this request would exceed your account's monthly spend limit|blocked_api_access$|spend_\w{1,40}$"
    r"|credit_balance_exhausted$|(?:organization|project)_(?:spend|usage)_limit_exceeded$",
    re.IGNORECASE,
)
"""How Anthropic, Cloudflare, DashScope, Fireworks, Gemini, Groq, LiteLLM, MiniMax, Moonshot, OpenAI, xAI and Z.ai say
with 400, 412, 429 or 500 that our account is empty or closed, our key is wrong or our place is not served."""
_OF_A_FIELD: Final = "Extra inputs are not permitted"
"""How Anthropic rejects a field that it does not know: after its name, which is the caller's to choose."""
_TOO_LONG: Final = re.compile(
    rb"context_length_exceeded|exceed_context|context (?:length|window|size|limit)"
    rb"|(?:prompt|input|messages) is too long|input token count|maximum (?:prompt|model) length|model token limit"
    rb"|range of input length|maximum allowed (?:input )?length|prompt exceeds max length|more than max tokens allowed"
    rb"|sum of prompt length|`inputs` (?:tokens|must have)|token count of \d+ exceeds|too many tokens"
    rb"|input \(\d+ tokens\) is too large|prompt_tokens \(\d+\) must be less than|max tokens of \d+ exceeded"
    rb"|model max length exceeded|exceed max message tokens|tokens exceed the configured limit",
    re.IGNORECASE,
)
"""How providers reject a prompt that another model may have room for: OpenAI and compatible servers, llama.cpp,
Anthropic, Bedrock, Cohere, Copilot, DashScope, Gemini, Kimi, Perplexity, SGLang, SiliconFlow, Snowflake, TensorRT-LLM,
TGI, vLLM, Volcengine, xAI, Z.ai. Our count of tokens, by which candidates are chosen, is an estimate."""
_NEVER_FITS: Final = re.compile(
    rb"input or output tokens must be reduced|request too large for model[^\"]{1,200} tokens per minute"
    rb"|\"weight_exceeds_budget\"",
    re.IGNORECASE,
)
"""How OpenAI with 429 and Groq with 413 say that one request has more tokens than we may send in a minute, and
OpenRouter with 402 that it may cost more than the part of our balance that is lent to what runs. Groq's names our
organisation."""
_OF_THE_REQUEST: Final = re.compile(
    rb"Jinja Exception|raise_exception|rendering prompt with jinja|Unexpected reasoning effort|requires --jinja"
    rb"|(?:image|audio) input is not supported|missing data required for image|tool call arguments as JSON"
    rb"|While executing \w+ at line|Failed to parse (?:messages|tools): |JSON schema error at |tokens\) is too large"
    rb"|Failed to (?:load|download) image|Invalid base64 value|Cannot use both json_schema and grammar"
    rb"|roles (?:must alternate|are supported)|System role not supported|System message must be|No user query found"
    rb"|\d validation errors?:\\n +\{'type': '|can only concatenate str \(not |'dict object' has no attribute '"
    rb"|model must be created with embedding=True|\AInternal Server Error: \d+ validation errors? for [A-Z]\w+\n"
)
"""How llama.cpp, llama-cpp-python, LM Studio, Ollama, vLLM and Xinference say with 500 that a model cannot take this
request: its chat template refuses it, it sees no images, or a field, a tool, a schema or the length is not as the
server wants it."""
_WORDLESS: Final = b'"message":"","type":"internal_server_error"'
"""How llama-cpp-python's server refuses several prompts, or a forced call where its format of tools has none."""
_FULL: Final = re.compile(
    rb"busy and cannot accept new requests|prefill token backlog limit|the request queue is full"
    rb"|aborted by a higher priority request|request waiting timeout reached|request dropped due to backpressure"
    rb"|\"Server is busy; please try again later|\"server busy, please try again|\"admission_rejected\"",
    re.IGNORECASE,
)
"""How vLLM (--max-num-queued-reqs, --max-num-queued-tokens), SGLang (--max-queued-requests), Ray Serve
(max_queued_requests), KoboldCpp (--multiuser), Ollama (OLLAMA_MAX_QUEUE) and LocalAI (max_concurrent) say with 503 that
they are full. Only LocalAI names a wait."""
_FULL_SECONDS: Final = 1.0
"""A full engine frees a place whenever an answer ends; our own engine names the same wait."""
_DEGRADED: Final = re.compile(rb'"detail"\s*:\s*"Function id \'[\w-]{1,64}\': DEGRADED function cannot be invoked')
"""How NVIDIA says with 400 that what serves a model is down."""
_FASTCHAT_FAILED: Final = re.compile(rb'\{"object":"error","message":".*","code":5000\d\}', re.DOTALL)
"""How FastChat says with 400 that a worker failed, or its GPU has no memory left."""
_TOO_MANY: Final = re.compile(
    rb'"message"\s*:\s*"(?:\{\\"message\\":\s*\\")?Too many (?:requests|tokens), please wait before trying again'
)
"""How servers that speak Anthropic's format in front of Bedrock say in a stream, as of a 400, that they are full."""
_BADLY_WRITTEN: Final = re.compile(
    rb'"(?:tool_use_failed|json_validate_failed|output_parse_failed)"|"message":"Failed to parse output: '
)
"""How Groq and LMDeploy reject what their model wrote, as if the request were at fault."""
_SAYS_SO: Final = re.compile(r"prompt is too long|max_(?:completion_|output_)?tokens", re.IGNORECASE)
_AUTH: Final = frozenset({401, 402, 403})  # 402: our account with that provider is out of money
_MAY_MEAN_AUTH: Final = frozenset({400, 412, 429, 500})
_TIMEOUT: Final = frozenset({408, 504})
_BUSY: Final = frozenset({407, 409, 423, 425, 498})  # 407: from a proxy in between, of which the caller knows nothing
_NOT_OFFERED: Final = frozenset({405, 501})
_ROUTERS: Final = frozenset(
    {
        "not found",
        "file not found",
        "resource not found",
        "method not allowed",
        "no route matched with those values",
    }
)
"""Error texts for an unknown path: FastAPI, vLLM and Anthropic, llama.cpp, Azure, Kong."""
_INVALID_KEY: Final = re.compile(rb'"reason"\s*:\s*"API_KEY_INVALID"')
"""As a member: Google's messages quote names and values of the request, with escaped quotes."""
_ADDRESS: Final = re.compile(rb'"unknown_url"|"Invalid URL \(|"Could not route to ')


def error_from_status(status: int, headers: Mapping[str, str], body: bytes, *, backend: str) -> BackendError:
    """The error for an answer that is not 2xx."""
    message = f"{backend} answered {status}{describe_error(body)}"
    if status == 403 and _FILTERED.search(body):
        refusal = UpstreamRejected(f"{message}: its content filter rejects the request")
        refusal.is_filtered = True
        return refusal
    if status == 403 and body.lstrip()[:1] == b"<":  # a firewall in between; it may object to the prompt
        return UpstreamUnavailable(message, status=status)
    # No wait mends it, and it says nothing about other requests.
    if status in (402, 413, 429) and _NEVER_FITS.search(body):
        return Untranslatable(f"{message}: the request is larger than it takes of this gateway", status=413)
    if status == 402 and (wait := parse_retry_after(headers)) is not None:  # OpenRouter, while other requests run
        return RateLimited(message, status=status, retry_after_seconds=wait)
    if status in _AUTH or (status in _MAY_MEAN_AUTH and _names_our_account(body)):
        return UpstreamAuth(message, status=status)
    if status == 400 and (_DEGRADED.search(body) or _FASTCHAT_FAILED.fullmatch(body)):
        return UpstreamUnavailable(message, status=503)
    if status == 429 or (status == 400 and _TOO_MANY.search(body)):
        wait = parse_retry_after(headers)
        wait = retry_delay_in(body) if wait is None else wait
        return RateLimited(message, retry_after_seconds=wait)
    if status == 503 and _FULL.search(body):  # not broken: a failure would keep everybody from it for up to a minute
        wait = parse_retry_after(headers)
        return RateLimited(message, status=status, retry_after_seconds=_FULL_SECONDS if wait is None else wait)
    if status in _TIMEOUT:
        return UpstreamTimeout(message, status=status)
    if status == 413 or (status in (400, 422) and is_too_long(body)):
        return Untranslatable(f"{message}: the request is too long for it", status=status, body=body)
    if status in (400, 422) and _BADLY_WRITTEN.search(body):
        return Untranslatable(f"{message}: its model wrote no valid call or JSON", status=status, body=body)
    if status == 500 and _OF_THE_REQUEST.search(body):
        return Untranslatable(f"{message}: its model cannot take the request", status=400, body=body)
    if status == 500 and _WORDLESS in body:
        return Untranslatable(f"{message}: its server cannot take the request, without saying why", status=400)
    if status in _NOT_OFFERED or (400 <= status < 500 and status not in _BUSY):
        return UpstreamRejected(message, status=status, body=body)
    return UpstreamUnavailable(message, status=status, retry_after_seconds=parse_retry_after(headers))


def error_from_event(error: object, *, backend: str, is_started: bool) -> BackendError:
    """The error for an error object inside a 200: after the first chunk always StreamBroken."""
    label = _label(error)
    message = f"{backend} sent an error in its answer{label}"
    if is_started:
        return StreamBroken(message)
    status = _status_of(error)
    said = cast(Mapping[str, object], error).get("message") if isinstance(error, Mapping) else None
    if status is None and isinstance(said, str) and _OF_THE_REQUEST.search(said.encode(errors="replace")):
        status = 500
    if status is None:
        return UpstreamUnavailable(message)
    body = msgspec.json.encode({"error": error}, enc_hook=str)
    return error_from_status(status, {}, body, backend=backend)


def broken(backend: str, what: str, *, is_started: bool) -> BackendError:
    """The error for a stream that cannot be read further: after the first chunk always StreamBroken."""
    kind = StreamBroken if is_started else UnreadableAnswer
    return kind(f"{backend} {what}")


def no_answer(message: str, body: bytes, *, usage: Usage | None = None, length: int | None = None) -> UnreadableAnswer:
    """The error for a 200 with neither an answer nor an error in it. Only JSON counts as part of an answer, not an HTML
    page. `length` is the full length if `body` is only the beginning."""
    is_part = body.lstrip()[:1] == b"{"
    characters = (len(body) if length is None else length) if is_part else 0
    return UnreadableAnswer(message, usage=usage, output_characters=characters)


def google_status(status: int, body: bytes) -> int:
    """Google answers 400 for an invalid key; this makes it 401."""
    return 401 if status == 400 and _INVALID_KEY.search(body) else status


def is_too_long(body: bytes) -> bool:
    """Whether an error body says that the prompt is longer than the model's context."""
    return _TOO_LONG.search(body) is not None


def said_too_long(message: str) -> str:
    """The message with the words that LangChain and coding agents look for before they shorten a conversation, unless
    it may be the answer that has no room."""
    return message if _SAYS_SO.search(message) else f"prompt is too long: {message}"


def has_nothing_there(status: int, body: bytes) -> bool:
    """Whether a server lacks the path, rather than rejecting the request: 405, 501, or a 404 or 410 whose body is HTML,
    empty, or a plain "not found"."""
    if status not in (404, 410, *_NOT_OFFERED):
        return False
    if status in _NOT_OFFERED or _ADDRESS.search(body):
        return True
    try:
        said: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return True
    for name in ("error", "message", "detail"):
        if isinstance(said, Mapping):
            fields = cast(Mapping[str, object], said)
            said = fields.get(name, said)
    return isinstance(said, str) and said.strip(" .").lower() in _ROUTERS


def describe_error(body: bytes) -> str:
    """` (code)`: an error body's code or type, if it looks like an identifier; else empty."""
    return _label(_error_in(body))


def _names_our_account(body: bytes) -> bool:
    """Whether an error is about our account. Only from a text's beginning: many errors quote the caller, who could
    otherwise close a provider to everybody."""
    error = _error_in(body)
    said = map(error.get, ("message", "error", "code", "type"))
    return any(isinstance(text, str) and _OUR_ACCOUNT.match(text) and _OF_A_FIELD not in text for text in said)


def _error_in(body: bytes) -> Mapping[str, object]:
    """The error object of a body, else the first of its `errors` (Cloudflare), or the body itself if its error is a
    text; empty if there is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    if isinstance(document, list) and document:
        document = cast(list[object], document)[0]
    fields = cast(dict[str, object], document) if isinstance(document, dict) else {}
    error, several = fields.get("error"), fields.get("errors")
    if not isinstance(error, dict) and isinstance(several, list) and several:
        error = cast(list[object], several)[0]
    return cast(dict[str, object], error) if isinstance(error, dict) else fields


def _label(error: object) -> str:
    if not isinstance(error, Mapping):
        return ""
    fields = cast(Mapping[str, object], error)
    for name in ("code", "type", "status"):
        value = fields.get(name)
        if isinstance(value, str) and _IDENTIFIER.fullmatch(value.lower()):
            return f" ({value.lower()})"
    return ""


_STATUS_BY_TYPE: Final[Mapping[str, int]] = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    **dict.fromkeys(("insufficient_quota", "credit_balance_exhausted"), 429),
    **dict.fromkeys(("organization_spend_limit_exceeded", "project_spend_limit_exceeded"), 429),
    "organization_usage_limit_exceeded": 429,
    "throttling": 429,
    "overloaded_error": 529,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "request_too_large": 413,
    "api_error": 500,
    "server_error": 500,
    TOO_LONG: 400,
    "invalid_prompt": 400,
    "bio_policy": 400,
    **dict.fromkeys(
        (
            "empty_image_file",
            "failed_to_download_image",
            "image_content_policy_violation",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "invalid_base64_image",
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
            "unsupported_image_media_type",
        ),
        400,
    ),
}
"""Those after `server_error` are OpenAI's, of a response that failed because of the request."""


def _status_of(error: object) -> int | None:
    if not isinstance(error, Mapping):
        return None
    fields = cast(Mapping[str, object], error)
    for name in ("code", "status", "type"):
        value = fields.get(name)
        if isinstance(value, str):
            value = _STATUS_BY_TYPE.get(value.lower().partition(".")[0]) or (
                int(value) if re.fullmatch(r"[45]\d\d", value) else None
            )
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None
