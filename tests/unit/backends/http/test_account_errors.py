"""Errors about our key or account, for which a provider rests for all callers, and those that only look like it."""

import msgspec
import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.http.errors import (
    error_from_status,
    google_status,
)

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
    error = error_from_status(403, {}, body, backend="b")
    assert type(error) is kind
    if isinstance(error, UpstreamRejected):  # xAI's message names our team and key
        assert (error.status, error.body) == (400, b"")


def test_openrouter_says_402_of_what_runs_at_once_and_of_one_dear_request() -> None:
    """It holds an estimate of each paid request against a small balance until the request has ended."""
    body = b'{"error":{"code":402,"message":"no","metadata":{"reason":"in_flight_budget_exhausted"}}}'
    waits = error_from_status(402, {"retry-after": "120"}, body, backend="b")
    assert isinstance(waits, RateLimited)
    assert (waits.status, waits.retry_after_seconds) == (402, 120.0)
    dear = error_from_status(
        402, {}, body.replace(b"in_flight_budget_exhausted", b"weight_exceeds_budget"), backend="b"
    )
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
    *(
        (429, b'{"error":{"message":"no","type":"requests","code":"%b"}}' % code)
        for code in (b"credit_balance_exhausted", b"organization_spend_limit_exceeded", b"project_spend_limit_exceeded")
    ),
    *(
        (400, b'{"error":{"message":"no","type":"invalid_request_error","code":"%b"}}' % code)
        for code in (b"blocked_api_access", b"spend_limit_reached")
    ),
    (
        429,
        b'{"error":{"code":429,"message":"Your prepayment credits are depleted. Please go to AI Studio at '
        b'https://ai.studio/projects to manage your project and billing.","status":"RESOURCE_EXHAUSTED"}}',
    ),
    (
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account\'s '
        b'monthly spend limit."}}',
    ),
    (
        400,
        b'{"error":{"message":"Budget has been exceeded! Current cost: 1.0, Max budget: 0.05",'
        b'"type":"budget_exceeded","param":null,"code":"400"}}',
    ),
    (
        429,
        b'{"errors":[{"message":"you have used up your daily free allocation of 10,000 neurons, please upgrade to '
        b'Cloudflare\'s Workers Paid plan","code":4006}],"success":false,"result":{},"messages":[]}',
    ),
]


@pytest.mark.parametrize(("status", "body"), OUR_ACCOUNT)
def test_an_empty_account_or_a_wrong_key_is_not_the_callers_mistake(status: int, body: bytes) -> None:
    """Callers were told our account's state, and no other model was asked."""
    error = error_from_status(status, {}, body, backend="b")
    assert type(error) is UpstreamAuth
    assert error.status == status


def test_a_caller_whom_an_error_quotes_closes_no_provider() -> None:
    for said in ("Your credit balance is too low", "insufficient_quota"):
        error = {"message": f"Invalid value: '{said}'", "type": "invalid_request_error", "param": said}
        body = msgspec.json.encode({"error": {**error, "input": {"message": said, "type": said}}})
        assert type(error_from_status(400, {}, body, backend="b")) is UpstreamRejected
        field = msgspec.json.encode({"error": {"message": f"{said}: Extra inputs are not permitted"}})
        assert type(error_from_status(400, {}, field, backend="b")) is UpstreamRejected, (
            "Anthropic begins with the name of the caller's field"
        )
    for said in ("API_KEY_INVALID", '"reason": "API_KEY_INVALID"'):
        body = msgspec.json.encode({"error": {"message": f'Unknown name "{said}": Cannot find field.'}})
        assert google_status(400, body) == 400
