"""Reranking: the request to each server, and what its answer becomes for the caller and the books."""

import json
from typing import Any

import pytest

from backends.errors import UnreadableAnswer, Untranslatable, UpstreamRejected, UpstreamUnavailable
from backends.formats.rerank import RerankAsked, ask, read_answer, rerank_dialect_of, where_another_may_do
from backends.protocol import Call, Chunk
from backends.usage import Units, Usage

BODY = b'{ "query": "q", "documents": ["a","b"],  "model": "auto", "top_n": 1 }'
ASKED = RerankAsked(b"", 2)
RESULTS = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]


def make_call(body: bytes = BODY) -> Call:
    return Call("rerank", "up", body, False, "r1")


def asked_of(provider: str, body: bytes = BODY) -> RerankAsked:
    return ask(make_call(body), rerank_dialect_of(provider), backend="b")


def read(answer: object, asked: RerankAsked = ASKED) -> Chunk:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(body, asked, make_call(), backend="b")


def test_only_the_model_is_changed_where_the_format_is_the_same() -> None:
    asked = asked_of("acme")
    assert asked == RerankAsked(BODY.replace(b'"auto"', b'"up"'), 2, 1)
    assert asked_of("acme", b'{"query":"q","documents":["a"]}').body == b'{"query":"q","documents":["a"],"model":"up"}'


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        ("acme", {"top_n": 1, "max_tokens_per_doc": 9, "return_documents": True}),
        ("cohere", {"top_n": 1, "max_tokens_per_doc": 9}),
        ("jina", {"top_n": 1, "return_documents": True}),
        ("together", {"top_n": 1, "return_documents": True}),
        ("fireworks", {"top_n": 1, "return_documents": True}),
        ("voyage", {"top_k": 1}),
    ],
)
def test_each_provider_is_asked_in_its_own_words(provider: str, sent: dict[str, Any]) -> None:
    body = {"query": "q", "documents": [{"text": "a", "id": 7}, "b"], "model": "auto"}
    more = {"top_n": 1, "max_tokens_per_doc": 9, "return_documents": True}
    asked = asked_of(provider, json.dumps(body | more).encode())
    assert json.loads(asked.body) == {"query": "q", "documents": ["a", "b"], "model": "up", **sent}
    assert [json.loads(one) for one in asked.documents or ()] == [{"text": "a", "id": 7}, {"text": "b"}]


def test_text_embeddings_inference_is_asked_for_texts() -> None:
    asked = asked_of("text-embeddings-inference")
    assert json.loads(asked.body) == {"query": "q", "texts": ["a", "b"], "truncate": True}
    answer = read([{"index": 0, "score": 0.2}, {"index": 1, "score": 0.8}], asked)
    assert json.loads(answer.payload) == {"id": "r1", "results": [{"index": 1, "relevance_score": 0.8}]}
    assert answer.usage is None


def test_more_documents_than_a_provider_takes_are_for_another() -> None:
    body = json.dumps({"query": "q", "documents": ["a"] * 1_001}).encode()
    with pytest.raises(Untranslatable, match="documents: b ranks at most 1,000 at once, and these are 1,001"):
        asked_of("voyage", body)
    assert asked_of("cohere", body).count == 1_001


@pytest.mark.parametrize(
    ("status", "message", "is_of_many"),
    [
        (422, "batch size 40 > maximum allowed batch size 32", True),  # Text Embeddings Inference
        (400, "The number of documents exceeds the maximum of 1000", True),
        (400, "too many documents", True),
        (400, "query is required", False),
        (401, "too many documents", False),
    ],
)
def test_a_refusal_of_so_many_is_told_from_others(status: int, message: str, is_of_many: bool) -> None:
    body = json.dumps({"error": message}).encode()
    found = where_another_may_do(UpstreamRejected("b answered", status=status, body=body))
    assert (found is not None) is is_of_many
    assert where_another_may_do(Untranslatable("x", status=400, body=body)) is None


def test_a_body_that_nobody_can_read_is_refused() -> None:
    for body in (b"[]", b'{"query":"q","documents":[1]}', b'{"query":"q"}'):
        with pytest.raises(UpstreamRejected):
            asked_of("acme", body)


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "x", "results": RESULTS, "meta": {"api_version": {"version": "2"}}},  # Cohere
        {"id": "x", "model": "m", "usage": {"total_tokens": 9}, "results": [dict(RESULTS[0], document={"text": "b"})]},
    ],
)
def test_an_answer_in_the_common_form_is_handed_on_byte_for_byte(answer: object) -> None:
    body = json.dumps(answer, indent=3).encode()
    chunk = read(body)
    assert (chunk.payload, chunk.is_done, chunk.has_output) == (body, True, True)


def test_voyages_answer_is_written_in_the_common_form() -> None:
    usage = {"total_tokens": 26}
    chunk = read({"object": "list", "data": RESULTS[::-1], "model": "rerank-2.5", "usage": usage})
    said = json.loads(chunk.payload)
    assert said == {"id": "r1", "model": "rerank-2.5", "results": RESULTS, "usage": usage}
    assert chunk.usage == Usage(26)


def test_sglangs_answer_is_cut_where_it_did_not_look_at_top_n() -> None:
    answer = [{"score": 0.9, "document": "b", "index": 1, "meta_info": {}}, {"score": 0.1, "document": "a", "index": 0}]
    said = json.loads(read(answer, RerankAsked(b"", 2, 1)).payload)
    assert said["results"] == [{"index": 1, "relevance_score": 0.9}]
    assert len(json.loads(read({"results": RESULTS}, RerankAsked(b"", 2, 1)).payload)["results"]) == 1


def test_documents_are_put_back_as_they_came() -> None:
    asked = RerankAsked(b"", 2, None, [b'{"text":"a","id": 7}', b'{"text":"b"}'])
    said = json.loads(read({"results": RESULTS}, asked).payload)
    assert [one["document"] for one in said["results"]] == [{"text": "b"}, {"text": "a", "id": 7}]
    as_text = [dict(one, document="x") for one in RESULTS]
    assert b'"id": 7' in read({"results": as_text}, asked).payload
    assert b"document" not in read({"results": as_text}).payload


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"meta": {"billed_units": {"search_units": 2.0}}}, Usage(units=Units(search_units=2))),
        (
            {"meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 5, "output_tokens": 0}}},
            Usage(5, units=Units(search_units=1)),
        ),
        ({"meta": {"billed_units": {"total_tokens": 8}}}, Usage(8)),
        ({"usage": {"total_tokens": 8}}, Usage(8)),  # Jina, Voyage, vLLM
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}}, Usage(7, output_tokens=1)),
        ({"usage": {"total_tokens": 0}}, None),
        (
            {"provider": "Cohere", "usage": {"search_units": 1, "cost": 0.002}},  # OpenRouter
            Usage(units=Units(search_units=1), charged_pico_usd=2_000_000_000),
        ),
        (
            {"provider": "Cohere", "usage": {"total_tokens": 150, "search_units": 1, "cost": 0.001}},
            Usage(150, units=Units(search_units=1), charged_pico_usd=1_000_000_000),
        ),
        ({"provider": "Nvidia", "usage": {"total_tokens": 20, "cost": 0}}, Usage(20)),
        ({"usage": {"search_units": 2, "cost": 0.1}}, Usage(units=Units(search_units=2))),  # somebody's estimate
        ({"usage": None, "meta": None}, None),
        ({}, None),
    ],
)
def test_what_it_was_billed_by(told: dict[str, Any], usage: Usage | None) -> None:
    chunk = read({"results": RESULTS, **told})
    assert (chunk.usage, chunk.is_usage_malformed) == (usage, False)


@pytest.mark.parametrize("units", [-1, 1.5, "2", True])
def test_a_usage_that_is_none_counts_as_missing(units: object) -> None:
    chunk = read({"results": RESULTS, "meta": {"billed_units": {"search_units": units}}})
    assert (chunk.usage, chunk.is_usage_malformed) == (None, True)


@pytest.mark.parametrize(
    "results",
    [
        [{"index": 2, "relevance_score": 1}],
        [{"index": -1, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}] * 2,
        [{"index": 0}],
        None,
    ],
)
def test_an_answer_that_ranks_something_else_is_none(results: object) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read({"results": results, "usage": {"total_tokens": 8}})
    assert caught.value.usage == Usage(8)


def test_what_is_no_answer_at_all() -> None:
    for body in (b"<html>", b"{}", b'"x"', b"[1]", b"[" * 5000):
        with pytest.raises(UnreadableAnswer):
            read(body)
    with pytest.raises((UpstreamRejected, UpstreamUnavailable)):
        read({"error": {"message": "no", "code": 500}})
