"""Statuses and error events, by table."""

import msgspec
import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.http.errors import (
    describe_error,
    error_from_event,
    error_from_status,
    has_nothing_there,
)


def from_status(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> BackendError:
    return error_from_status(status, headers or {}, body, backend="b")


STATUSES: list[tuple[type[BackendError], list[int]]] = [
    (UpstreamRejected, [400, 404, 405, 406, 410, 411, 415, 418, 422, 431, 451, 501]),
    (Untranslatable, [413]),
    (UpstreamAuth, [401, 402, 403]),
    (RateLimited, [429]),
    (UpstreamTimeout, [408, 504]),
    (
        UpstreamUnavailable,
        [301, 302, 307, 308, 100, 304, 407, 409, 423, 425, 498, 500, 502, 503, 520, 524, 529, 599],
    ),
]


@pytest.mark.parametrize(("kind", "status"), [(kind, status) for kind, statuses in STATUSES for status in statuses])
def test_statuses(kind: type[BackendError], status: int) -> None:
    error = from_status(status)
    assert type(error) is kind
    assert error.status == status
    assert str(status) in error.message


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "the request exceeds the available context size, try increasing it",
        "input (1001 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, decrease input length",
        "Input is too long for requested model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 202752]",
        "Input length (700001 tokens) exceeds the maximum allowed length (536826 tokens). Use a shorter input",
        "Input length 877338 exceeds the maximum allowed input length of 639968 tokens",
        "Prompt exceeds max length",
        "prompt token count of 130000 exceeds the limit of 128000",
        "too many tokens: size limit exceeded by 11326 tokens",
        "The total length of all messages is too long.",
        "tokens in request more than max tokens allowed",
        "The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens",
        "length of prompt_tokens (57535) must be less than max_seq_len (32768)",
        "max tokens of 200000 exceeded",
        "model max length exceeded, max length: 8192",
        "Total tokens of image and text exceed max message tokens. Request id: 0217",
        "Input tokens exceed the configured limit of 192000 tokens.",
    ],
)
def test_a_prompt_that_is_too_long_for_one_model_may_fit_into_another(message: str) -> None:
    body = msgspec.json.encode({"error": {"message": message}})
    error = from_status(400, body)
    assert isinstance(error, Untranslatable)
    assert (error.status, error.body) == (400, body)


def test_what_one_model_writes_badly_another_may_write_well() -> None:
    error = {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}
    body = msgspec.json.encode({"error": error})
    for failed in (from_status(400, body), error_from_event(error, backend="b", is_started=False)):
        assert isinstance(failed, Untranslatable)
        assert (failed.status, failed.body) == (400, body)
    lmdeploy = b'{"message":"Failed to parse output: Expecting value","type":"invalid_request_error","code":400}'
    assert isinstance(from_status(400, lmdeploy), Untranslatable)


def test_what_serves_nvidias_model_is_down() -> None:
    """They say so with 400, and each caller was told that the request is wrong."""
    said = "Function id '3b9748d8-1d85-40e8-8573-0eeaa63a4b63': DEGRADED function cannot be invoked"
    error = from_status(400, msgspec.json.encode({"status": 400, "title": "Bad Request", "detail": said}))
    assert (type(error), error.status) == (UpstreamUnavailable, 503)
    quoted = msgspec.json.encode({"detail": [{"msg": "too long", "input": f'"detail":"{said}'}]})
    assert type(from_status(400, quoted)) is UpstreamRejected


@pytest.mark.parametrize(
    "said", ["Internal Server Error", "**NETWORK ERROR DUE TO HIGH TRAFFIC.**\\n\\n(CUDA out of memory)"]
)
def test_what_failed_inside_fastchat_is_no_fault_of_the_request(said: str) -> None:
    """It answers everything with 400 (0.2.36): no other model was asked while its worker failed."""
    body = f'{{"object":"error","message":"{said}","code":50002}}'.encode()
    assert type(from_status(400, body)) is UpstreamUnavailable
    for other in (body.replace(b"50002", b"40302"), b'{"detail":' + body + b"}"):
        assert type(from_status(400, other)) is UpstreamRejected


def test_a_request_larger_than_its_limit_of_a_minute_is_asked_elsewhere_and_closes_no_key() -> None:
    """Callers are not told the name of our organisation, nor that their conversation is too long."""
    said = "Request too large for gpt-6 in organization org-x on tokens per min (TPM): Limit 30000, Requested 35000. "
    error = {"message": f"{said}The input or output tokens must be reduced.", "code": "rate_limit_exceeded"}
    body = msgspec.json.encode({"error": error})
    groq = (
        b'{"error":{"message":"Request too large for model `m` in organization `org_x` service tier `on_demand` on '
        b'tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again.",'
        b'"type":"tokens","code":"rate_limit_exceeded"}}'
    )
    for found in (
        from_status(429, body),
        error_from_event(error, backend="b", is_started=False),
        from_status(413, groq),
    ):
        assert isinstance(found, Untranslatable)
        assert (found.status, found.body) == (413, b"")


@pytest.mark.parametrize(
    "said",
    [
        "Error: Jinja Exception: Conversation roles must alternate",
        "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "Failed to create new sequence: this model is missing data required for image input",
        "tools param requires --jinja flag",
        "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error",
        "While executing FilterExpression at line 120: Unknown (built-in) filter 'items' for type String",
        "Failed to parse tools: [json.exception.type_error.302] type must be string, but is null; tools = []",
        "Failed to parse tools: Unsupported tool type: {}; tools = []",
        'Failed to parse messages: Missing tool call type: {"id":"a"}',
        "JSON schema error at #/properties/a: unrecognized type file",
        "input (1001 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        "Failed to load image or audio file",
        "Failed to download image",
        "Invalid base64 value",
        "Cannot use both json_schema and grammar",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Only user and assistant roles are supported!",
        "System role not supported",
        "System message must be at the beginning.",
        "No user query found in messages.",
        "2 validation errors:\n  {'type': 'float_type', 'loc': ('body', 'temperature'), 'input': None}\n\n  File",
        'can only concatenate str (not "list") to str',
        "'dict object' has no attribute 'content'",
        "Llama model must be created with embedding=True to call this method",
    ],
)
def test_a_500_about_the_request_does_not_count_against_the_server(said: str) -> None:
    """An agent that sent an image with each step closed a text model to everybody."""
    body = msgspec.json.encode({"error": {"code": 500, "message": said, "type": "server_error"}})
    error = from_status(500, body)
    assert isinstance(error, Untranslatable)
    assert (error.status, error.body) == (400, body)


def test_a_500_of_xinference_about_the_fields_is_about_the_request() -> None:
    """As plain text (4.1.0), to a null or a list of prompts: five in a row closed the model to everybody."""
    field = b"temperature\n  none is not an allowed value (type=type_error.none.not_allowed)"
    error = from_status(500, b"Internal Server Error: 1 validation error for CreateChatCompletion\n" + field)
    assert isinstance(error, Untranslatable)
    assert error.status == 400
    assert type(from_status(500, b"Internal Server Error: " + field)) is UpstreamUnavailable


def test_a_500_of_llama_cpp_python_without_a_word_is_about_the_request() -> None:
    """A check that fails in its code (0.3.36): five lists of prompts in a row closed the model to everybody."""
    error = from_status(500, b'{"error":{"message":"","type":"internal_server_error","param":null,"code":null}}')
    assert isinstance(error, Untranslatable)
    assert (error.status, error.body) == (400, b"")
    assert "without saying why" in error.message


@pytest.mark.parametrize(
    "error",
    [  # vLLM 0.32.0 in a chat and a message; SGLang, which sends its own inside a stream
        {
            "message": "The engine is currently busy and cannot accept new requests. Please try again later or on a "
            "different instance.",
            "type": "Service Unavailable",
            "param": None,
            "code": 503,
        },
        {"type": "Service Unavailable", "message": "The engine has reached its prefill token backlog limit."},
        {"message": "The request queue is full.", "code": 503},
        {"message": "The request is aborted by a higher priority request.", "code": 503},
        {"message": "Request waiting timeout reached.", "code": 503},
        {"msg": "Server is busy; please try again later.", "type": "service_unavailable"},  # KoboldCpp, as a `detail`
        {"message": "server busy, please try again.  maximum pending requests exceeded", "type": "api_error"},  # Ollama
        {"type": "admission_rejected", "message": 'model "a" is at capacity (max_concurrent=1)'},  # LocalAI
    ],
)
def test_a_full_queue_is_a_pause_and_no_failure(error: dict[str, object]) -> None:
    """Five such answers in a row closed an engine that was only busy."""
    found = from_status(503, msgspec.json.encode({"error": error}))
    assert isinstance(found, RateLimited)
    assert (found.status, found.retry_after_seconds) == (503, 1.0)
    if "code" in error:
        assert isinstance(error_from_event(error, backend="b", is_started=False), RateLimited)
    told = from_status(503, msgspec.json.encode({"error": error}), {"retry-after": "4"})
    assert isinstance(told, RateLimited)
    assert told.retry_after_seconds == 4.0


def test_a_full_queue_of_ray_serve_is_told_in_plain_text() -> None:
    """As Ray Serve 2.60 sends it."""
    body = b"Request dropped due to backpressure (num_queued_requests=1, max_queued_requests=1)."
    assert isinstance(from_status(503, body), RateLimited)


def test_no_message_quotes_the_upstream() -> None:
    canary = "CANARY my secret prompt"
    body = msgspec.json.encode({"error": {"message": canary, "type": canary, "code": canary, "param": canary}})
    for status in (400, 401, 429, 500):
        assert "CANARY" not in repr(from_status(status, body))
        assert "CANARY" not in from_status(status, body).message


LABELS: list[tuple[bytes, str]] = [
    (b'{"error":{"code":"model_not_found","type":"x"}}', " (model_not_found)"),
    (b'{"error":{"code":null,"type":"insufficient_quota"}}', " (insufficient_quota)"),
    (b'{"error":{"code":404,"status":"NOT_FOUND"}}', " (not_found)"),
    (b'[{"error":{"code":400,"status":"INVALID_ARGUMENT"}}]', " (invalid_argument)"),
    (b'{"error":"text"}', ""),
    (b"{}", ""),
    (b"[]", ""),
    (b"7", ""),
    (b"<html>", ""),
    (b"\xff", ""),
    (b"[" * 5000, ""),
]


@pytest.mark.parametrize(("body", "label"), LABELS)
def test_labels(body: bytes, label: str) -> None:
    assert describe_error(body) == label


EVENTS: list[tuple[object, type[BackendError]]] = [
    ({"code": 429}, RateLimited),
    ({"code": "429"}, RateLimited),
    ({"type": "rate_limit_error"}, RateLimited),
    ({"type": "insufficient_quota"}, UpstreamAuth),
    ({"type": "error", "code": "credit_balance_exhausted"}, UpstreamAuth),
    ({"code": "project_spend_limit_exceeded"}, UpstreamAuth),
    ({"type": "overloaded_error"}, UpstreamUnavailable),
    ({"type": "authentication_error"}, UpstreamAuth),
    ({"type": "invalid_request_error"}, UpstreamRejected),
    ({"code": 400}, UpstreamRejected),
    ({"code": True}, UpstreamUnavailable),
    ({"code": 200}, UpstreamUnavailable),
    ({"message": "?"}, UpstreamUnavailable),
    (
        {
            "type": "invalid_request_error",
            "message": '{"message":"Too many tokens, please wait before trying again. ..."}',
        },
        RateLimited,
    ),
    ({"message": 'Error rendering prompt with jinja template: "System message must be"'}, Untranslatable),
    ("text", UpstreamUnavailable),
    (None, UpstreamUnavailable),
]


@pytest.mark.parametrize(("error", "kind"), EVENTS)
def test_an_error_event_is_final_once_the_answer_has_begun(error: object, kind: type[BackendError]) -> None:
    assert type(error_from_event(error, backend="b", is_started=False)) is kind
    assert type(error_from_event(error, backend="b", is_started=True)) is StreamBroken


def test_a_rejection_in_an_event_keeps_its_body_for_the_caller() -> None:
    error = error_from_event({"code": 400, "message": "no"}, backend="b", is_started=False)
    assert isinstance(error, UpstreamRejected)
    assert msgspec.json.decode(error.body) == {"error": {"code": 400, "message": "no"}}


NOTHING_THERE: list[tuple[int, bytes, bool]] = [
    (404, b"", True),
    (404, b"<html><title>404 Not Found</title></html>", True),
    (404, b"404 page not found", True),
    (404, b'{"detail":"Not Found"}', True),
    (404, b'{"error":{"message":"Not Found","type":"NotFoundError","param":null,"code":404}}', True),
    (404, b'{"type":"error","error":{"type":"not_found_error","message":"Not Found"}}', True),
    (404, b'{"error":{"code":"404","message":"Resource not found"}}', True),
    (404, b'{"message":"no Route matched with those values"}', True),
    (404, b'{"timestamp":1,"status":404,"error":"Not Found","path":"/x"}', True),
    (404, b'{"error":{"message":"Invalid URL (POST /v1/x)","type":"invalid_request_error","code":null}}', True),
    (404, b'{"error":{"message":"Unknown request URL: POST /x.","code":"unknown_url"}}', True),
    (404, b'{"errors":[{"code":7003,"message":"Could not route to /accounts/x/ai/v1, perhaps ..."}]}', True),
    (405, b'{"detail":"Method Not Allowed"}', True),
    (405, b'{"error":{"message":"whatever"}}', True),
    (410, b"<html>", True),
    (404, b'{"error":{"message":"No such File object: f-1","type":"invalid_request_error"}}', False),
    (404, b'{"detail":"Adapter x not found"}', False),
    (404, b'{"detail":[{"loc":["body"],"msg":"Not Found"}]}', False),
    (404, b"{}", False),
    (400, b"", False),
    (422, b'{"detail":"Not Found"}', False),
]


@pytest.mark.parametrize(("status", "body", "expected"), NOTHING_THERE)
def test_what_a_router_says_is_no_refusal_of_the_request(status: int, body: bytes, expected: bool) -> None:
    assert has_nothing_there(status, body) is expected
