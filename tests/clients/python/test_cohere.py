"""Cohere's own client where it ranks documents, by both of its APIs."""

from collections.abc import Iterator

import cohere
import pytest
from cohere.core.api_error import ApiError
from running_gateway import Gateway

DOCUMENTS = ["Lima.", "Paris is the capital of France.", "Rome is in Italy."]


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2(api_key=gateway.key, base_url=gateway.url) as made:
        yield made


def test_documents_are_ranked(client: cohere.ClientV2) -> None:
    answer = client.rerank(model="ranks", query="Where is Paris?", documents=DOCUMENTS, top_n=2)
    assert [one.index for one in answer.results] == [1, 2]
    assert answer.results[0].relevance_score == 1
    assert answer.meta is not None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.search_units == 1


def test_whoever_leaves_the_model_to_the_rules(client: cohere.ClientV2) -> None:
    raw = client.with_raw_response.rerank(model="auto", query="Where is Paris?", documents=DOCUMENTS * 50)
    assert raw.headers["x-breakeven-model"] == "ranks"
    assert raw.headers["x-breakeven-cost-usd"] == "0.004", "two searches at $2 a thousand"
    assert len(raw.data.results) == 150


def test_the_first_api_gets_its_documents_back(gateway: Gateway) -> None:
    with cohere.Client(api_key=gateway.key, base_url=gateway.url) as client:
        documents = [{"text": one} for one in DOCUMENTS]
        answer = client.rerank(model="ranks", query="Paris?", documents=documents, top_n=1, return_documents=True)
    [first] = answer.results
    assert first.document is not None
    assert (first.index, first.document.text) == (1, DOCUMENTS[1])


def test_no_documents_are_refused(client: cohere.ClientV2) -> None:
    with pytest.raises(ApiError) as caught:
        client.rerank(model="ranks", query="Where is Paris?", documents=[])
    assert (caught.value.status_code, "at least one document" in str(caught.value.body)) == (400, True)


def test_a_spent_budget(gateway: Gateway) -> None:
    with cohere.ClientV2(api_key=gateway.poor_key, base_url=gateway.url) as client, pytest.raises(ApiError) as caught:
        client.rerank(model="ranks", query="Where is Paris?", documents=DOCUMENTS, request_options={"max_retries": 0})
    assert caught.value.status_code == 429
