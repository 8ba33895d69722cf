"""How errors of litellm are translated."""

import json

import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    UnreadableAnswer,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.litellm_backend import LitellmBackend
from backends.protocol import Call, Timeouts
from tests.unit.backends.fake_litellm import BODY, FakeLitellm, error_named, make_call

ERRORS: list[tuple[Exception, type[BackendError]]] = [
    (error_named("RateLimitError", 429), RateLimited),
    (error_named("AuthenticationError", 401), UpstreamAuth),
    (error_named("BadRequestError", 400), UpstreamRejected),
    (error_named("ContextWindowExceededError", 400, message="why: Input is too long."), Untranslatable),
    (
        error_named("NotFoundError", 404, message="why: The API deployment for this resource does not exist."),
        Untranslatable,
    ),
    (error_named("BadRequestError", 400, message="why: This model does not support tools."), Untranslatable),
    (error_named("BadRequestError", 400, message='why - {"message":"Your credit balance is too low"}'), UpstreamAuth),
    (error_named("InternalServerError", 500), UpstreamUnavailable),
    (error_named("APIResponseValidationError", 422), UnreadableAnswer),
    (error_named("APIError", 200), UnreadableAnswer),
    *(
        (error_named("APIError", 500, message=f"litellm.APIError: {message}"), kind)
        for message, kind in (
            ("AzureException APIError - Invalid response object Traceback", UnreadableAnswer),
            ("AzureException APIError - Unexpected string response from Azure: <html>", UnreadableAnswer),
            ("LiteLLM: provider returned 'choices' that is not a list (NoneType)", UnreadableAnswer),
            ("AzureException APIError - The server had an error: Invalid response object", UpstreamUnavailable),
        )
    ),
    (
        error_named(
            "APIConnectionError",
            500,
            message="litellm.APIConnectionError: AnthropicException - Unable to get json response - Expecting value",
        ),
        UnreadableAnswer,
    ),
    (
        error_named(
            "InternalServerError",
            500,
            message="litellm.InternalServerError: InternalServerError: OpenAIException - Expecting value: line 1",
        ),
        UnreadableAnswer,
    ),
    (
        error_named(
            "BadRequestError",
            400,
            message="litellm.BadRequestError: BedrockException - Error converting to valid response block=Expecting",
        ),
        UnreadableAnswer,
    ),
    (error_named("APIConnectionError", 500), UpstreamUnavailable),
    (error_named("Timeout", 408), UpstreamTimeout),
    (TimeoutError(), UpstreamTimeout),
    (ValueError("bug"), UpstreamUnavailable),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
async def test_its_errors_become_ours(error: Exception, kind: type[BackendError]) -> None:
    with pytest.raises(BackendError) as caught:
        await LitellmBackend("b", complete=FakeLitellm(error)).open(make_call())
    assert type(caught.value) is kind
    assert "why" not in caught.value.message
    if isinstance(caught.value, UpstreamRejected):
        assert json.loads(caught.value.body)["error"]["message"].startswith("why")


async def test_the_wait_that_vertex_names_is_read() -> None:
    said = 'litellm.RateLimitError: VertexAIException - {"error":{"details":[{"retryDelay":"34s"}]}}'
    with pytest.raises(RateLimited) as caught:
        await LitellmBackend("b", complete=FakeLitellm(error_named("RateLimitError", 429, message=said))).open(
            make_call()
        )
    assert caught.value.retry_after_seconds == 34.0


@pytest.mark.parametrize(
    ("refused", "made", "kind"),
    [
        (400, error_named("AuthenticationError", 401, message="x.Invalid API Key: Extra inputs"), UpstreamRejected),
        (400, error_named("InternalServerError", 500, message="x.Overloaded: Extra inputs"), UpstreamRejected),
        (422, error_named("RateLimitError", 429, message="Invalid function 'get_rate_limit'"), UpstreamRejected),
        (413, error_named("RateLimitError", 429, message="too large, code: rate_limit_exceeded"), Untranslatable),
        (413, error_named("BadRequestError", 400, message="Request exceeds the maximum size"), Untranslatable),
        (400, error_named("Timeout", 408, message="x.Request timed out: Extra inputs"), UpstreamRejected),
        (400, error_named("APIConnectionError", 500, message="x.Overloaded: Extra inputs"), UpstreamRejected),
        (400, error_named("AuthenticationError", 401, message='why - {"reason":"API_KEY_INVALID"}'), UpstreamAuth),
        (
            400,
            error_named("AuthenticationError", 401, message='why - {"error":"Incorrect API key provided"}'),
            UpstreamAuth,
        ),
    ],
)
async def test_a_refusal_that_quotes_words_for_a_wrong_key_a_broken_or_a_busy_server_is_none_of_them(
    refused: int, made: Exception, kind: type[BackendError]
) -> None:
    """litellm 1.106.2 goes by such words in Anthropic's 400 that names a caller's field, or OpenAI's that names a tool:
    the key or the model rested for all."""
    made.__context__ = error_named("AnthropicError", refused)
    with pytest.raises(BackendError) as caught:
        await LitellmBackend("b", complete=FakeLitellm(made)).open(make_call(BODY))
    assert isinstance(caught.value, kind)


@pytest.mark.parametrize(
    ("address", "kind"), [("gs://b/f", UpstreamRejected), (r"s3:\/\/b", UpstreamRejected), ("x", UpstreamAuth)]
)
async def test_a_bucket_that_we_may_not_read_closes_the_model_to_nobody_else(
    address: str, kind: type[BackendError]
) -> None:
    body = f'{{"messages": [{{"role": "user", "content": "{address}"}}]}}'.encode()
    call = Call("chat.completions", "vertex_ai/x", body, False, "r-1", Timeouts(), True)
    fake = FakeLitellm(error_named("PermissionDeniedError", 403))
    with pytest.raises(BackendError) as caught:
        await LitellmBackend("b", complete=fake).open(call)
    assert type(caught.value) is kind
