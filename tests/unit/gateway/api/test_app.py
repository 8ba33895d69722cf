"""What the application answers at paths that do not exist."""
# pyright: reportUnusedFunction=false

from typing import Any
from urllib.parse import unquote

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError

from gateway.api.admin.key_views import ChangeKey, CreateKey
from gateway.api.admin.rules import Change, NewRules
from gateway.api.app import build_fastapi
from gateway.api.batches import NewBatch
from gateway.api.other_addresses import OtherAddresses
from gateway.errors import DatabaseDown, StateError


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/messages"])
def test_a_model_endpoint_opened_in_a_browser_says_that_it_wants_a_post(path: str) -> None:
    answer = TestClient(build_fastapi()).get(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["message"] == "Send a POST; see /docs."


@pytest.mark.parametrize("left", [{"upgrade": "WebSocket"}, {"sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}])
def test_whose_offer_of_a_websocket_came_incomplete_is_told_what_a_proxy_may_have_dropped(left: dict[str, str]) -> None:
    """Codex turns to POSTs at once only after 426."""
    answer = TestClient(build_fastapi()).get("/v1/responses", headers=left)
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "HTTP/1.1")
    assert "if proxies on the way pass on the headers Upgrade and Connection" in answer.json()["error"]["message"]


def test_a_wrong_method_is_told_of_all_that_are_served_at_its_address() -> None:
    app, router = build_fastapi(), APIRouter(prefix="/admin/v1")

    async def answer(key_id: str) -> str:
        return key_id

    for method in ("DELETE", "GET"):
        router.add_api_route("/keys/{key_id}", answer, methods=[method])
    router.add_api_route("/keys/{key_id}/limits", answer, methods=["PUT"])
    app.include_router(router)
    client = TestClient(app)
    assert client.put("/admin/v1/keys/k").headers["allow"] == "GET, HEAD, DELETE"
    assert client.get("/admin/v1/keys/k/limits").headers["allow"] == "PUT"


@pytest.mark.parametrize("path", ["/v1/chat/completion", "/v1/chat/completions%3Fa=b", "/v1/chat/completions%0A"])
def test_elsewhere_there_is_nothing(path: str) -> None:
    answer = TestClient(build_fastapi()).post(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith(f"There is nothing at {unquote(path)}; ")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1//chat/completions", "did you mean /v1/chat/completions? The base_url must not end with a slash"),
        (
            "/v1/chat/completions/chat/completions",
            "did you mean /v1/chat/completions? An OpenAI client's base_url must end",
        ),
        ("/v1/chat/completions/models", "did you mean /v1/models? An OpenAI client's base_url must end in /v1"),
        (
            "/v1/messages/v1/messages",
            "did you mean /v1/messages? An OpenAI client's base_url must end in /v1, an Anthropic client's",
        ),
        ("/v1/v1/messages", "did you mean /v1/messages? This client adds /v1 itself"),
        (
            "/v1/chat/completions/conversations",
            "did you mean /v1/conversations? An OpenAI client's base_url must end in /v1",
        ),
        ("/v1/filesystem", "see /docs"),
        ("/v1beta/cachedContents", "of Gemini's API, models, generateContent, streamGenerateContent"),
        ("/upload/v1beta/files", "for files, caches and other things stored at Google ask Google"),
        ("/v1/interactions", "of Gemini's API, models"),
        ("/openai/v1/responses", "did you mean /v1/responses? The base_url must have no path before /v1"),
        ("/openai/v1/files", "did you mean /v1/files? The base_url must have no path before /v1"),
        ("/api/v1/chat/completions", "did you mean /v1/chat/completions? The base_url must have no path before /v1"),
        ("/v1/threads/thread_1/runs", "there are no threads here; /v1/conversations keeps the turns"),
        ("/v1/evals", "models are evaluated by `breakeven evaluate`"),
        ("/v1/containers/c/files", "containers are not offered here"),
        ("/v1/skills", "put their instructions into the request"),
        ("/", "see /docs; of Hugging Face's client, only chat_completion works here"),
        ("/v1", "see /docs; of Hugging Face's client, only chat_completion works here"),
        ("/generate_stream", "text-generation-inference's API is not offered here: use an OpenAI client"),
        ("/v1/v1/nothing", "see /docs"),
    ],
)
def test_a_client_with_a_wrong_base_address_is_told_what_is_wrong_with_it(path: str, says: str) -> None:
    answer = TestClient(build_fastapi()).post(path, json={})
    assert answer.status_code == 404
    assert says in answer.json()["error"]["message"]


def test_ollamas_clients_are_told_in_a_text_which_is_all_they_show() -> None:
    answer = TestClient(build_fastapi()).post("/api/chat", json={})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("There is nothing at /api/chat; Ollama's API is not offered here: use an")


def test_what_a_provider_alone_does_is_no_wrong_method_where_a_response_could_have_that_name() -> None:
    app = build_fastapi()

    @app.get("/v1/responses/{response_id}")
    async def retrieve(response_id: str) -> str:
        return response_id

    @app.get("/v1/models/{name}")
    async def model(name: str) -> str:
        return name

    gemini = TestClient(OtherAddresses(app)).post("/v1/models/m:predict", json={}, headers={"x-goog-api-key": "k"})
    assert gemini.status_code == 404
    assert "of Gemini's API, models, generateContent" in gemini.json()["error"]["message"]
    assert TestClient(app).post("/v1/responses/resp_1", json={}).status_code == 405


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DatabaseDown("cannot use the database postgresql://heidi@db"), 503, "database_unavailable"),
        (StateError("cannot use the folder of heidi"), 500, "internal_error"),
    ],
)
def test_what_is_wrong_here_is_told_in_the_log_and_not_to_the_caller(
    error: StateError, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = build_fastapi()

    @app.get("/broken")
    async def broken() -> None:
        raise error

    answer = TestClient(app).get("/broken")
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert "heidi" not in answer.text
    assert str(error) in caplog.text
    assert ("retry-after" in answer.headers) is (status == 503)


HALF = "\ud800"
CHANGE = {"expected_active": None}
BATCH = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions"}


@pytest.mark.parametrize(
    ("body", "valid", "wrong"),
    [
        (NewBatch, BATCH, {"input_file_id": HALF}),
        (NewBatch, BATCH, {"completion_window": HALF}),
        (Change, CHANGE, {"expected_active": HALF}),
        (NewRules, CHANGE | {"text": "x"}, {"expected_active": HALF}),
        (CreateKey, {"name": "a"}, {"allowed_models": [HALF]}),
        (ChangeKey, {}, {"allowed_models": [HALF]}),
    ],
)
def test_half_a_character_reaches_no_database(
    body: type[BaseModel], valid: dict[str, Any], wrong: dict[str, Any]
) -> None:
    body.model_validate(valid)
    with pytest.raises(ValidationError, match="unicode"):
        body.model_validate(valid | wrong)
