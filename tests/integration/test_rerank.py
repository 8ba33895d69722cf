"""Reranking through the whole gateway: in each provider's own format, booked as it bills."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from backends.openai_compatible import OpenAICompatibleBackend
from backends.translating import TranslatingBackend
from gateway.ledger.entry import Media, Status
from gateway.pricing.catalogue import ModelPrices
from gateway.routing.snapshot import Candidate
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.integration.service import Passage, Service
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}
RULES = "version: 1\nrules: [{name: default, choose: {from: any, by: expected_cost}}]\n"
BY_SEARCH = replace(make_prices(0, 0), source="by the search", per_search_unit_pico_usd=2 * 10**9)
DOCUMENTS = ["Nevada's capital is Carson City.", {"text": "Paris is in France.", "id": 7}]
RESULTS = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
COHERES = {"id": "x", "results": RESULTS, "meta": {"billed_units": {"search_units": 1}}}
VOYAGES = {"object": "list", "data": RESULTS, "usage": {"total_tokens": 26}}


def ranker(name: str, backend: str, prices: ModelPrices | None) -> Candidate:
    return make_candidate(name, backend=backend, context_window=512, supports=frozenset({"rerank"}), prices=prices)


MODELS = [
    ranker("searches", "cohere", BY_SEARCH),
    ranker("tokens", "voyage", make_prices(0.05, 0)),
    ranker("own", "tei", None),
    make_candidate("writes", backend="cohere"),
]


@dataclass(frozen=True, slots=True)
class Library(Passage):
    """A gateway in front of rerankers of three kinds, all played by one scripted provider."""

    async def ask(self, **body: Any) -> httpx.Response:
        asked = {"query": "Where is Paris?", "documents": DOCUMENTS, **body}
        async with httpx.AsyncClient() as client:
            return await client.post(f"{self.url}/v1/rerank", headers={"authorization": f"Bearer {KEY}"}, json=asked)


@pytest.fixture
async def library() -> AsyncGenerator[Library]:
    service = Service(Rig())
    service.rig.pipeline.snapshot = make_snapshot(RULES, MODELS)
    async with ScriptedProvider() as provider, serving(service.app) as url:
        names = {"cohere": "cohere", "voyage": "voyage", "tei": "text-embeddings-inference"}
        backends = {
            name: OpenAICompatibleBackend(name, provider.base_url, "sk", provider=whose)
            for name, whose in names.items()
        }
        service.rig.pipeline.backends = {name: TranslatingBackend(one) for name, one in backends.items()}
        yield Library(service, provider, url)
        for backend in backends.values():
            await backend.aclose()


def answered(document: object, status: int = 200) -> Raw:
    return Raw((json.dumps(document).encode(),), status=status, headers=JSON)


async def test_documents_are_ranked_and_the_search_is_booked(library: Library) -> None:
    library.provider.plan([answered(COHERES)])
    answer = await library.ask(model="searches", top_n=2)
    assert (answer.status_code, answer.content) == (200, json.dumps(COHERES).encode())
    [received] = library.provider.received
    assert received.path == "/v2/rerank"
    assert received.json == {
        "query": "Where is Paris?",
        "documents": ["Nevada's capital is Carson City.", "Paris is in France."],
        "model": "upstream-searches",
        "top_n": 2,
    }
    entry = await library.entry()
    assert (entry.status, entry.intent.operation, entry.media) == (Status.completed, "rerank", Media(search_units=1))
    assert entry.cost is not None
    assert (entry.cost.other_pico_usd, entry.cost.total_pico_usd) == (2 * 10**9, 2 * 10**9)
    assert (answer.headers["x-breakeven-cost-usd"], entry.is_usage_estimated) == ("0.002", False)


async def test_whoever_names_no_model_gets_the_cheapest_and_the_documents_back(library: Library) -> None:
    """Voyage has another name for `top_n`, and another format of answers."""
    library.provider.plan([answered(VOYAGES)])
    answer = await library.ask(top_n=1, return_documents=True)
    assert answer.headers["x-breakeven-model"] == "tokens"
    assert answer.json()["results"] == [{**RESULTS[0], "document": {"text": "Paris is in France.", "id": 7}}]
    [received] = library.provider.received
    assert (received.path, received.json["top_k"]) == ("/v1/rerank", 1)
    assert {"top_n", "return_documents"}.isdisjoint(received.json)
    entry = await library.entry()
    assert entry.cost is not None
    assert (entry.input_tokens, entry.cost.total_pico_usd, entry.media) == (26, 26 * 50_000, Media())


async def test_a_server_of_ones_own_is_asked_for_texts_and_its_cost_is_not_known(library: Library) -> None:
    library.provider.plan([answered([{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}])])
    answer = await library.ask(model="own")
    assert answer.json()["results"] == RESULTS
    assert answer.json()["id"]
    [received] = library.provider.received
    assert (received.path, set(received.json)) == ("/rerank", {"query", "texts", "truncate"})
    entry = await library.entry()
    assert (entry.cost, entry.is_usage_estimated, entry.input_tokens > 0) == (None, True, True)


async def test_more_documents_than_a_model_takes_are_anothers(library: Library) -> None:
    many = [{"index": 0, "relevance_score": 1.0}]
    library.provider.plan([answered({"results": many, "meta": {"billed_units": {"search_units": 11}}})])
    answer = await library.ask(documents=["a"] * 1_001)
    assert (answer.status_code, answer.headers["x-breakeven-model"]) == (200, "searches")
    assert len(library.provider.received) == 1
    entry = await library.entry()
    assert entry.attempts[0].outcome != "answered"
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 11 * 2 * 10**9


async def test_a_model_that_is_named_says_how_many_it_takes(library: Library) -> None:
    answer = await library.ask(model="tokens", documents=["a"] * 1_001)
    assert answer.status_code == 400
    assert "voyage ranks at most 1,000 at once, and these are 1,001" in answer.json()["error"]["message"]
    assert library.provider.received == []


async def test_a_server_that_refuses_so_many_leaves_them_to_another(library: Library) -> None:
    refusal = {"error": "batch size 2 > maximum allowed batch size 1", "error_type": "Validation"}
    library.provider.plan([answered(refusal, 422), answered(COHERES)])
    answer = await library.ask()
    assert (answer.status_code, answer.headers["x-breakeven-model"]) == (200, "searches")


async def test_another_answers_where_one_fails(library: Library) -> None:
    library.provider.plan([answered({"detail": "down"}, 503), answered(COHERES)])
    answer = await library.ask()
    assert (answer.status_code, answer.headers["x-breakeven-model"]) == (200, "searches")
    assert len((await library.entry()).attempts) == 2


async def test_who_told_nothing_is_booked_as_expected(library: Library) -> None:
    library.provider.plan([answered({"results": RESULTS})])
    assert (await library.ask(model="searches")).status_code == 200
    entry = await library.entry()
    assert (entry.is_usage_estimated, entry.media) == (True, Media(search_units=1))
    assert entry.cost is not None
    assert (entry.cost_lower_pico_usd, entry.cost.total_pico_usd) == (2 * 10**9, 2 * 10**9)
    assert entry.cost_upper_pico_usd is not None
    assert entry.cost_upper_pico_usd >= 2 * 10**9


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"documents": []}, "documents: needs at least one document to rank."),
        ({"documents": [1]}, "documents[0]: Expected"),
        ({"model": "writes"}, "it writes text"),
        ({"rank_fields": ["title"]}, "put everything that counts into it"),
    ],
)
async def test_what_cannot_be_ranked_says_why(library: Library, body: dict[str, Any], says: str) -> None:
    answer = await library.ask(**body)
    assert (answer.status_code, says in answer.json()["error"]["message"]) == (400, True), answer.text
    assert library.provider.received == []


async def test_without_a_ranker_it_says_how_to_get_one(library: Library) -> None:
    library.service.rig.pipeline.snapshot = make_snapshot(RULES, MODELS[-1:])
    answer = await library.ask()
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "COHERE_API_KEY" in message
    assert "supports: [rerank]" in message
