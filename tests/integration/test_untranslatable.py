"""A request that the cheapest model's wire format cannot express goes to a model whose format can."""

import httpx
import pytest

from backends.anthropic import AnthropicBackend
from tests.integration.service import MESSAGES, Service
from tests.rig import KEY

pytestmark = pytest.mark.integration
ASKED = {"messages": MESSAGES, "n": 2}


async def ask(service: Service, model: str) -> httpx.Response:
    one = AnthropicBackend("one", "http://127.0.0.1:9/v1", "k")  # never called
    service.rig.pipeline.backends = {"one": one, "two": service.rig.two}
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
        return await client.post(f"{service.url}/v1/chat/completions", json={**ASKED, "model": model})


async def test_a_routed_request_goes_to_the_next_model(service: Service) -> None:
    answer = await ask(service, "auto")
    assert (answer.status_code, answer.headers["x-breakeven-model"]) == (200, "b")
    assert [attempt.outcome for attempt in service.rig.entry.attempts] == ["Untranslatable", "answered"]


async def test_a_named_model_says_which_field_it_cannot_be_asked(service: Service) -> None:
    answer = await ask(service, "a")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
