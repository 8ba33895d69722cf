"""Gemini's embedding calls translated to OpenAI's, and back."""

import json
from typing import Any

import pytest

from backends.endpoints.content_embeddings import embedding_body, embeddings_from_answer
from backends.errors import UpstreamRejected

Json = dict[str, Any]


def content(*texts: str, **more: object) -> Json:
    return {"content": {"parts": [{"text": text} for text in texts]}, **more}


def asked(body: Json, *, is_batch: bool) -> Json:
    return json.loads(embedding_body(json.dumps(body).encode(), model="m", is_batch=is_batch))


def test_one_text_and_many() -> None:
    assert asked(content("a", "b", taskType="RETRIEVAL_QUERY", title="t"), is_batch=False) == {
        "model": "m",
        "input": "a\nb",
    }
    requests = [content("a", output_dimensionality=3), content("b", embedContentConfig={"outputDimensionality": "3"})]
    assert asked({"requests": requests}, is_batch=True) == {"model": "m", "input": ["a", "b"], "dimensions": 3}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"requests": []}, "at least one"),
        ({"requests": [content("a", outputDimensionality=3), content("b")]}, "the same in all requests"),
        ({"requests": [{"content": {"parts": [{"inlineData": {}}]}}]}, "only text"),
        ({"requests": ["a"]}, "must be an object"),
    ],
)
def test_what_cannot_be_embedded_is_refused(body: Json, says: str) -> None:
    with pytest.raises(UpstreamRejected, match=says):
        asked(body, is_batch=True)
    with pytest.raises(UpstreamRejected, match="JSON object"):
        embedding_body(b"[]", model="m", is_batch=True)


def test_answers_come_in_the_order_in_which_they_were_asked_for() -> None:
    rows = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    body = json.dumps({"data": rows, "usage": {"prompt_tokens": 4}}).encode()
    assert json.loads(embeddings_from_answer(body, is_batch=True)) == {
        "embeddings": [{"values": [1.0]}, {"values": [2.0]}],
        "usageMetadata": {"promptTokenCount": 4},
    }
    assert json.loads(embeddings_from_answer(b'{"data":[{"embedding":[1.0]}]}', is_batch=False)) == {
        "embedding": {"values": [1.0]}
    }


def test_one_alone_is_a_list_of_one() -> None:
    alone = {"content": {"parts": {"text": "a"}}}
    assert asked(alone, is_batch=False) == {"model": "m", "input": "a"}
    assert asked({"requests": alone}, is_batch=True) == {"model": "m", "input": ["a"]}
