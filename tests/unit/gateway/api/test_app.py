"""What the application says at addresses that answer nobody."""

import pytest
from fastapi.testclient import TestClient

from gateway.api.app import build_fastapi


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/messages"])
def test_a_model_endpoint_opened_in_a_browser_says_that_it_wants_a_post(path: str) -> None:
    answer = TestClient(build_fastapi()).get(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["message"] == "Send a POST; see /docs."


def test_elsewhere_there_is_nothing() -> None:
    answer = TestClient(build_fastapi()).get("/v1/chat/completion")
    assert answer.status_code == 404
    assert "/v1/chat/completion" in answer.json()["error"]["message"]


def test_a_base_url_without_v1_is_told_what_lacks() -> None:
    answer = TestClient(build_fastapi()).post("/chat/completions", json={})
    assert answer.status_code == 404
    assert "did you mean /v1/chat/completions? An OpenAI client's base_url ends in /v1" in answer.text
