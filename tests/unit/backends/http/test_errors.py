"""Statuses, Retry-After and error events, by table."""

from datetime import UTC, datetime

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
    google_status,
    has_nothing_there,
    parse_retry_after,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def from_status(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> BackendError:
    return error_from_status(status, headers or {}, body, backend="b", now=lambda: NOW)


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


FORBIDDEN: list[tuple[type[BackendError], bytes]] = [
    (
        UpstreamRejected,
        b'{"code":"The caller does not have permission to execute the specified operation","error":"Content violates '
        b'usage guidelines. Team: t, API key ID: k, Model: grok-4, Failed check: SAFETY_CHECK_TYPE_BIO"}',
    ),
    (UpstreamRejected, b'{"code":"permission-denied","error":"Content violates usage guidelines. "}'),
    (
        UpstreamRejected,
        b'{"error":{"code":403,"message":"x requires moderation on p. Your input was flagged for \\"a\\"."}}',
    ),
    (UpstreamRejected, b'{"error":{"code":403,"message":"no","metadata":{"reasons":["a"],"flagged_input":"b"}}}'),
    (UpstreamRejected, b'{"error":{"code":403,"message":"no","metadata":{"error_type":"content_policy_violation"}}}'),
    (
        UpstreamRejected,
        b'{"error":{"code":403,"message":"Request blocked: prompt injection patterns detected","metadata":{"patterns":['
        b'"ignore all previous instructions"]}}}',
    ),
    (
        UpstreamAuth,
        b'{"error":{"code":403,"message":"no","metadata":{"limit_source":"openrouter_guardrail_budget"}}}',
    ),
    (UpstreamAuth, b'{"code":"permission-denied","error":"Access to the chat endpoint is denied"}'),
    (UpstreamAuth, b'{"error":{"message":"Your account has been flagged for potential abuse."}}'),
    (UpstreamAuth, b'{"error":{"message":"Country, region, or territory not supported"}}'),
    (UpstreamAuth, b""),
    (UpstreamUnavailable, b"<html><title>Attention Required! | Cloudflare</title></html>"),
]


@pytest.mark.parametrize(("kind", "body"), FORBIDDEN)
def test_a_403_about_one_prompt_is_no_fault_of_the_key(kind: type[BackendError], body: bytes) -> None:
    """A single caller's prompt used to disable a provider for everyone for five minutes."""
    error = from_status(403, body)
    assert type(error) is kind
    if isinstance(error, UpstreamRejected):  # xAI's message names our team and key
        assert (error.status, error.body) == (400, b"")


def test_openrouter_says_402_of_what_runs_at_once_and_of_one_dear_request() -> None:
    """It holds an estimate of each paid request against a small balance until the request has ended."""
    body = b'{"error":{"code":402,"message":"no","metadata":{"reason":"in_flight_budget_exhausted"}}}'
    waits = from_status(402, body, {"retry-after": "120"})
    assert isinstance(waits, RateLimited)
    assert (waits.status, waits.retry_after_seconds) == (402, 120.0)
    dear = from_status(402, body.replace(b"in_flight_budget_exhausted", b"weight_exceeds_budget"))
    assert isinstance(dear, Untranslatable)
    assert (dear.status, dear.body) == (413, b"")


OUR_ACCOUNT: list[tuple[int, bytes]] = [
    (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access '
        b'the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."},"request_id":"r"}',
    ),
    (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage '
        b'limits. You will regain access on 2026-12-01 at 00:00 UTC."}}',
    ),
    (400, b'{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***yz."}'),
    (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"This organization has been disabled."}}',
    ),
    (
        400,
        b'{"error":{"message":"Organization has been restricted. Please reach out to support if you believe this was '
        b'in error.","type":"invalid_request_error","code":"organization_restricted"}}',
    ),
    (
        429,
        b'[{"error":{"code":429,"message":"Your project has exceeded its monthly spending cap.",'
        b'"status":"RESOURCE_EXHAUSTED"}}]',
    ),
    (400, b'{"error":{"message":"Billing hard limit has been reached.","code":"billing_hard_limit_reached"}}'),
    (
        400,
        b'{"error":{"code":400,"message":"User location is not supported for the API use.",'
        b'"status":"FAILED_PRECONDITION"}}',
    ),
    (400, b'{"error":{"code":"Arrearage","param":null,"message":"Access denied, please ...","type":"Arrearage"}}'),
    (412, b'{"error":{"message":"Account a is suspended, ...","code":"PRECONDITION_FAILED","type":"error"}}'),
    (429, b'{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"x"}}'),
    (429, b'{"code":"Some resource","error":"Your team t has either used all available credits or reached its limit"}'),
    (429, b'{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}'),
    (429, b'{"error":{"message":"suspended","type":"exceeded_current_quota_error"}}'),
    (429, b'{"error":{"message":"insufficient balance (1008)","type":"insufficient_balance_error"}}'),
    (500, b'{"type":"error","error":{"type":"api_error","message":"insufficient balance (1008)"}}'),
    (429, b'{"error":{"message":"You exceeded ...","code":"insufficient_quota"},"errors":["a list beside it"]}'),
    (
        429,
        b'{"errors":[{"message":"you have used up your daily free allocation of 10,000 neurons, please upgrade to '
        b'Cloudflare\'s Workers Paid plan","code":4006}],"success":false,"result":{},"messages":[]}',
    ),
]


@pytest.mark.parametrize(("status", "body"), OUR_ACCOUNT)
def test_an_empty_account_or_a_wrong_key_is_not_the_callers_mistake(status: int, body: bytes) -> None:
    """Callers were told our account's state, and no other model was asked."""
    error = from_status(status, body)
    assert type(error) is UpstreamAuth
    assert error.status == status


def test_a_caller_whom_an_error_quotes_closes_no_provider() -> None:
    for said in ("Your credit balance is too low", "insufficient_quota"):
        error = {"message": f"Invalid value: '{said}'", "type": "invalid_request_error", "param": said}
        body = msgspec.json.encode({"error": {**error, "input": {"message": said, "type": said}}})
        assert type(from_status(400, body)) is UpstreamRejected
        field = msgspec.json.encode({"error": {"message": f"{said}: Extra inputs are not permitted"}})
        assert type(from_status(400, field)) is UpstreamRejected, "Anthropic begins with the name of the caller's field"
    for said in ("API_KEY_INVALID", '"reason": "API_KEY_INVALID"'):
        body = msgspec.json.encode({"error": {"message": f'Unknown name "{said}": Cannot find field.'}})
        assert google_status(400, body) == 400


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


RETRY_AFTER: list[tuple[dict[str, str], float | None]] = [
    ({}, None),
    ({"retry-after": "3"}, 3.0),
    ({"retry-after": "0.25"}, 0.25),
    ({"retry-after": "-3"}, 0.0),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "1e300"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, 30.0),
    ({"retry-after": "Sat, 21 Nov 2026 12:00:30 -0000"}, 30.0),
    ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0.0),
    ({"retry-after": "Sat, 21 Nov 2099 11:00:00 GMT"}, None),
    ({"retry-after": "Sat, 99 Nov 2026 11:00:00 GMT"}, None),
]


@pytest.mark.parametrize(("headers", "expected"), RETRY_AFTER)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert parse_retry_after(headers, lambda: NOW) == expected


IN_THE_BODY: list[tuple[bytes, float | None]] = [
    (b'{"error":{"code":429,"details":[{"@type":"google.rpc.RetryInfo","retryDelay": "34.5s"}]}}', 34.5),
    (b'{"error":{"message":"Rate limit reached for m. Please try again in 125ms. Visit x"}}', 0.125),
    (b'{"error":{"message":"Limit 100, Used 99, Requested 9. Please try again in 7m12.5s. Need more?"}}', 432.5),
    (b'{"error":{"message":"on requests per day. Please try again in 1h2m3s."}}', 3723.0),
    (b'{"error":{"message":"Please retry after 26 seconds."}}', 26.0),
    (b'{"error":{"message":"Rate limit exceeded","retry_after":12.5}}', 12.5),
    (b'{"error":{"message":"Please try again in a moment, or in 3 s"}}', None),
    (b'{"error":{"details":[{"retryDelay": "soon"}]}}', None),
]


@pytest.mark.parametrize(("body", "seconds"), IN_THE_BODY)
def test_when_to_retry_may_be_told_in_the_body(body: bytes, seconds: float | None) -> None:
    for headers, expected in (({}, seconds), ({"retry-after": "2"}, 2.0)):
        error = from_status(429, body, headers)
        assert isinstance(error, RateLimited)
        assert error.retry_after_seconds == expected


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
