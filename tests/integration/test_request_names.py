"""What official clients read besides the body: the request id, in answers and in errors."""

import anthropic
import openai
import pytest

from backends.scripted import Outcome, follow
from tests.integration.service import MESSAGES, Service, client_of
from tests.rig import KEY

pytestmark = pytest.mark.integration


def claude(service: Service, key: str = KEY) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key=key, base_url=service.url, max_retries=0)


async def test_openai_names_the_request_as_the_ledger_does(service: Service) -> None:
    async with service.client() as client:
        answer = await client.chat.completions.create(model="a", messages=MESSAGES)
        assert answer._request_id == service.rig.entry.intent.request_id  # pyright: ignore[reportPrivateUsage]
        stream = await client.chat.completions.create(model="a", messages=MESSAGES, stream=True)
        async with stream:
            assert stream.response.headers["x-request-id"] == stream.response.headers["x-breakeven-request-id"]


async def test_anthropic_names_the_request_as_the_ledger_does(service: Service) -> None:
    async with claude(service) as client:
        answer = await client.messages.create(model="a", max_tokens=9, messages=MESSAGES)
    assert answer._request_id == service.rig.entry.intent.request_id  # pyright: ignore[reportPrivateUsage]


async def test_a_failure_that_is_booked_carries_its_entrys_name(service: Service) -> None:
    service.rig.one._script = follow([Outcome(fault="rejected")])  # pyright: ignore[reportPrivateUsage]
    async with service.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="a", messages=MESSAGES)
    assert caught.value.request_id == service.rig.entry.intent.request_id


async def test_a_refusal_has_a_name_though_nothing_is_booked(service: Service) -> None:
    async with client_of(service.url, "bk-wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model="a", messages=MESSAGES)
    assert len(caught.value.request_id or "") == 32
    async with claude(service, "bk-wrong") as client:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await client.messages.create(model="a", max_tokens=9, messages=MESSAGES)
    assert refused.value.response.headers["request-id"] == refused.value.body["request_id"]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
    assert not service.rig.ledger.entries


async def test_a_provider_that_is_too_busy_is_a_rate_limit_to_the_caller(service: Service) -> None:
    busy = follow([Outcome(fault="rate_limited", retry_after_seconds=30.0)])
    service.rig.one._script = service.rig.two._script = busy  # pyright: ignore[reportPrivateUsage]
    async with service.client() as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="a", messages=MESSAGES)
    assert (caught.value.type, caught.value.code) == ("rate_limit_error", "rate_limit_exceeded")
    assert caught.value.response.headers["retry-after"] == "30"


async def test_anthropics_client_reads_the_models_in_its_own_shape(service: Service) -> None:
    async with claude(service) as client:
        page = await client.models.list()
        assert [(model.type, model.id, model.display_name) for model in page.data] == [
            ("model", name, name) for name in ("auto", "a", "b")
        ]
        assert (page.has_more, page.first_id, page.last_id) == (False, "auto", "b")
        assert (await client.models.retrieve("b")).type == "model"
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await client.models.retrieve("zzz")
    assert unknown.value.body["error"]["type"] == "not_found_error"  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]


async def test_what_messages_does_not_offer_is_refused_in_its_shape(service: Service) -> None:
    async with claude(service) as client:
        with pytest.raises(anthropic.NotFoundError) as refused:
            await client.messages.batches.list()
    assert refused.value.body["error"]["type"] == "not_found_error"  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
    assert refused.value.body["request_id"] == refused.value.response.headers["request-id"]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
