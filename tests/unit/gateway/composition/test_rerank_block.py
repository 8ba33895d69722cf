"""What ranks documents: providers that have a key, and the user's own blocks, which keep their name."""

import json

import pytest

from backends.protocol import Call
from gateway.composition.backend_table import build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from tests.scripted_provider import Raw, ScriptedProvider

CURVE = fit_engine(ASSUMED)
BODY = b'{"query":"q","documents":["a"]}'
RANKING = Raw((b'[{"index":0,"score":0.5}]',), headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    ("block", "path", "fields"),
    [
        ({}, "/v1/rerank", {"query", "documents", "model"}),
        ({"health_from": "sglang"}, "/v1/rerank", {"query", "documents", "model"}),
        ({"provider": "cohere"}, "/v2/rerank", {"query", "documents", "model"}),
        ({"provider": "text-embeddings-inference"}, "/rerank", {"query", "texts", "truncate"}),
    ],
)
async def test_a_block_is_asked_as_its_provider_is(block: dict[str, str], path: str, fields: set[str]) -> None:
    async with ScriptedProvider(RANKING) as provider:
        settings = Settings.model_validate({"backends": {"mine": {"base_url": provider.base_url, **block}}})
        backend = build_backend_table(settings, {}, None, CURVE).adapters["mine"]
        (chunk,) = [chunk async for chunk in await backend.open(Call("rerank", "m", BODY, False, "r-1"))]
        await backend.aclose()
    assert [(one.path, set(one.json)) for one in provider.received] == [(path, fields)]
    assert json.loads(chunk.payload) == {"id": "r-1", "results": [{"index": 0, "relevance_score": 0.5}]}


async def test_a_key_brings_those_who_rank() -> None:
    table = build_backend_table(Settings(), {"COHERE_API_KEY": "k", "VOYAGE_API_KEY": "k"}, None, CURVE)
    assert set(table.facts) == {"cohere", "voyage"}
    assert table.models["rerank-v4.0-fast"].supports == table.models["voyage-rerank-3"].supports == ["rerank"]


async def test_a_block_keeps_its_name_from_a_provider_that_came_later() -> None:
    """Files that older versions of `breakeven from-litellm` wrote name a litellm block `cohere`."""
    settings = Settings.model_validate({"backends": {"cohere": {"base_url": "http://127.0.0.1:1/v1"}}})
    table = build_backend_table(settings, {"COHERE_API_KEY": "k"}, None, CURVE)
    assert "rerank-v4.0-fast" not in table.models
    assert list(table.adapters) == ["cohere", "simulated"]
