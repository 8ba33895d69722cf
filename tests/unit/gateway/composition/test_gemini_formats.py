"""In which format a deployment calls Gemini: Gemini's own for callers that use it, otherwise OpenAI's."""

import pytest

from backends.key_pool import KeyPool, PooledKey
from backends.protocol import Call, Operation
from backends.translating import TranslatingBackend
from gateway.composition.backend_table import build_adapter, build_backend_table, native_operations
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from tests.scripted_provider import Raw, ScriptedProvider

JSON = {"content-type": "application/json"}
CONTENT = b'{"contents":[{"parts":[{"text":"hi"}]}], "tools":[{"googleSearch":{}}]}'
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
ANSWER = b'{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}'
MODELS = Raw((b'{"data":[{"id":"models/m"}]}',), headers=JSON)
NATIVE = "/v1beta/models/m:generateContent"


async def asked(wire_format: str, base: str, operation: Operation, body: bytes) -> list[tuple[str, str]]:
    """The address at which a provider named `gemini` was called, and the key."""
    async with ScriptedProvider() as provider:
        if operation == "generate_content":
            provider.plan([Raw((ANSWER,), headers=JSON)])
        adapter = build_adapter(wire_format, "gemini", f"{provider.origin}{base}", "sk", "gemini")
        pool = KeyPool("gemini", [PooledKey("K", adapter)])
        backend = TranslatingBackend(pool, native=native_operations(wire_format, "gemini"))
        call = Call(operation, "m", body, False, "r", key="K")
        (chunk,) = [chunk async for chunk in await backend.open(call)]
        assert chunk.is_done
        await backend.aclose()
    found = [({name.lower(): value for name, value in one.headers.items()}, one) for one in provider.received]
    return [(one.path, headers.get("x-goog-api-key") or headers["authorization"]) for headers, one in found]


@pytest.mark.parametrize(
    ("wire_format", "base"), [("gemini", "/v1beta"), ("openai", "/v1beta/openai"), ("openai", "/v1beta/openai/")]
)
async def test_what_came_in_geminis_format_is_asked_in_it(wire_format: str, base: str) -> None:
    assert await asked(wire_format, base, "generate_content", CONTENT) == [(NATIVE, "sk")]


async def test_a_chat_is_asked_at_the_endpoint_for_openais_clients() -> None:
    paths = await asked("openai", "/v1beta/openai", "chat.completions", CHAT)
    assert paths == [("/v1beta/openai/chat/completions", "Bearer sk")]
    assert await asked("gemini", "/v1beta", "chat.completions", CHAT) == [(NATIVE, "sk")]


async def test_the_provider_that_a_key_brings_lists_its_models() -> None:
    table = build_backend_table(Settings(), {"GEMINI_API_KEY": "k"}, None, fit_engine(ASSUMED))
    assert set(table.facts) == {"gemini"}
    async with ScriptedProvider(pages=MODELS) as provider:
        adapter = build_adapter("openai", "gemini", f"{provider.origin}/v1beta/openai", "sk", "gemini")
        listed = TranslatingBackend(adapter)
        assert (listed.name, listed.is_simulated) == ("gemini", False)
        assert [one.models for one in await listed.model_lists()] == [frozenset({"m"})]
        assert (await listed.health()).is_healthy
        assert {one.path for one in provider.received} == {"/v1beta/openai/models"}
        await listed.aclose()
