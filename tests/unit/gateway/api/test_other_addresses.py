"""Paths of other APIs are rewritten to ours, with model and key; all other requests pass unchanged."""

import json
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from backends.formats.form_splice import find_fields, text_fields
from backends.protocol import JSON
from gateway.api.app import POSTED
from gateway.api.gemini import call_of, is_googles
from gateway.api.other_addresses import OtherAddresses, split_azures, split_googles
from gateway.api.shedding import API
from gateway.api.token_path import CURSOR, DEPLOYMENT, credential_of, of_cursor, of_deployment
from gateway.errors import InvalidRequest
from gateway.request.many_values import MOST


@pytest.mark.parametrize(
    ("asked", "path", "deployment"),
    [
        ("/openai/deployments/auto/chat/completions", "/v1/chat/completions", "auto"),
        ("/openai/deployments/auto/completions/", "/v1/completions", "auto"),
        ("/openai/deployments/org/model-1/embeddings", "/v1/embeddings", "org/model-1"),
        ("/openai/deployments/chat/completions", "/v1/completions", "chat"),
        ("/openai/deployments/dall-e-3/images/generations", "/v1/images/generations", "dall-e-3"),
        ("/openai/v1/responses", "/v1/responses", None),
        ("/openai/responses/resp_1", "/v1/responses/resp_1", None),
        ("/openai/v1/conversations/conv_1/items", "/v1/conversations/conv_1/items", None),
        ("/openai/deployments/auto/responses/input_tokens", "/v1/responses/input_tokens", "auto"),
        ("/openai/models", "/v1/models", None),
        ("/openai/deployments//chat/completions", "/v1/deployments//chat/completions", None),
        ("/openai/deployments/auto/extensions/chat", "/v1/deployments/auto/extensions/chat", None),
    ],
)
def test_each_address_of_azures_is_one_of_ours(asked: str, path: str, deployment: str | None) -> None:
    assert split_azures(asked) == (path, deployment)


async def seen(path: str, *headers: tuple[bytes, bytes], query: bytes = b"") -> tuple[Scope, Scope]:
    """The scope sent in, and the one that the application saw."""
    came: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        came.append(scope)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    sent: Scope = {"type": "http", "path": path, "headers": list(headers), "query_string": query}
    await OtherAddresses(app)(sent, nothing, nothing)
    return sent, came[0]


async def test_the_key_comes_as_azures_clients_send_it() -> None:
    _, scope = await seen("/openai/deployments/auto/chat/completions", (b"api-key", b"bk-1"))
    assert credential_of(scope["headers"]) == "bk-1"
    assert (scope["path"], scope[DEPLOYMENT]) == ("/v1/chat/completions", "auto")


async def test_litellms_header_comes_before_all_others() -> None:
    """As in LiteLLM: agents on a subscription send its token in `Authorization`."""
    key, token = (b"x-litellm-api-key", b"Bearer bk-1"), (b"authorization", b"Bearer a-subscriptions")
    assert credential_of([token, key, (b"x-api-key", b"bk-2")]) == "Bearer bk-1"
    _, scope = await seen("/openai/models", key, (b"api-key", b"bk-3"))
    assert credential_of(scope["headers"]) == "Bearer bk-1"
    assert credential_of([token, (b"x-litellm-api-key", b"")]) == "Bearer a-subscriptions"


@pytest.mark.parametrize(("other", "value"), [(b"authorization", b"Bearer bk-2"), (b"x-api-key", b"Bearer bk-2")])
async def test_a_key_in_another_header_comes_first(other: bytes, value: bytes) -> None:
    _, scope = await seen("/openai/models", (b"api-key", b"bk-1"), (other, value))
    assert credential_of(scope["headers"]) == "Bearer bk-2"


@pytest.mark.parametrize(
    "path",
    ["/chat/completions", "/embeddings", "/models/a", "/responses/resp_1", "/audio/speech", "/batches"],
)
async def test_a_base_address_may_lack_its_v1(path: str) -> None:
    _, scope = await seen(path)
    assert (scope["path"], DEPLOYMENT in scope) == (f"/v1{path}", False)


@pytest.mark.parametrize(
    ("asked", "path", "is_chat"),
    [
        ("/cursor/chat/completions", "/v1/chat/completions", True),
        ("/cursor/v1/chat/completions", "/v1/chat/completions", True),
        ("/cursor/models", "/v1/models", False),
    ],
)
async def test_cursor_asks_at_an_address_of_its_own(asked: str, path: str, is_chat: bool) -> None:
    _, scope = await seen(asked)
    assert (scope["path"], CURSOR in scope) == (path, is_chat)


def test_a_chat_of_cursors_that_is_none_is_refused() -> None:
    body = {"model": "auto", "input": [{"type": "item_reference", "id": "i"}]}
    with pytest.raises(InvalidRequest, match=r"input\[0\]\.type: "):
        of_cursor(json.dumps(body).encode())
    with pytest.raises(InvalidRequest, match="too many values"):
        of_cursor(b'{"x": [%b0]}' % (b"[]," * MOST.containers))


async def test_coheres_clients_rank() -> None:
    _, scope = await seen("/v2/rerank")
    assert scope["path"] == "/v1/rerank"
    _, scope = await seen("/rerank")
    assert scope["path"] == "/v1/rerank"


@pytest.mark.parametrize(
    ("asked", "path", "model"),
    [
        ("/v1beta/models/auto:generateContent", "/v1/models:generateContent", "auto"),
        ("/v1/models/org/m:8b:streamGenerateContent", "/v1/models:streamGenerateContent", "org/m:8b"),
        ("/v1alpha/models/m:countTokens", "/v1/models:countTokens", "m"),
        ("/v1beta/models/m:embedContent", "/v1/models:embedContent", "m"),
        ("/v1beta/models/m:batchEmbedContents", "/v1/models:batchEmbedContents", "m"),
        ("/v1beta/models/m:predict", None, ""),
        ("/v1beta/tunedModels/m:generateContent", None, ""),
        ("/v1/interactions", None, ""),
    ],
)
async def test_each_call_of_geminis_is_one_of_ours(asked: str, path: str | None, model: str) -> None:
    assert split_googles(asked) == (path, model)
    _, scope = await seen(asked, (b"x-goog-api-key", b"bk-1"))
    assert call_of(scope).model == model
    assert is_googles(scope)
    assert credential_of(scope["headers"]) == "bk-1"


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("/v1beta/models", "/v1/models"),
        ("/v1beta/models/a/b", "/v1/models/a/b"),
        ("/v1beta/modelsx", "/v1beta/modelsx"),
        ("/v1beta/files", "/v1beta/files"),
        ("/v1beta/openai/chat/completions", "/v1/chat/completions"),
    ],
)
async def test_models_are_told_of_where_geminis_clients_look(asked: str, path: str) -> None:
    _, scope = await seen(asked)
    assert (scope["path"], is_googles(scope)) == (path, "openai" not in asked)


async def test_a_key_in_the_query_goes_no_further() -> None:
    query = b"alt=sse&key=bk-1&pageSize=2"
    _, scope = await seen("/v1beta/models/m:streamGenerateContent", query=query)
    assert (scope["query_string"], call_of(scope).is_listed) == (b"alt=sse&pageSize=2", False)
    assert credential_of(scope["headers"]) == "bk-1"
    _, scope = await seen("/v1/models", query=b"key=bk-1")
    assert (credential_of(scope["headers"]), scope["query_string"], is_googles(scope)) == ("bk-1", b"", True)
    _, scope = await seen("/v1beta/models", (b"authorization", b"Bearer bk-2"), query=b"key=bk-1")
    assert credential_of(scope["headers"]) == "Bearer bk-2"
    for path in ("/v1/models", "/v1/chat/completions", "/v1/messages"):
        sent, scope = await seen(path, (b"authorization", b"Bearer bk-2"), query=b"limit=1")
        assert scope is sent


def test_whatever_is_answered_stands_where_calls_are_bounded() -> None:
    """Calls at other paths would be neither shed nor counted."""
    assert all(place.startswith(API) for place in POSTED)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/openai", "/openair/v1/models", "/", "", "/chats", "/v1"])
async def test_elsewhere_nothing_changes(path: str) -> None:
    sent, scope = await seen(path, (b"api-key", b"bk-1"))
    assert scope is sent
    assert credential_of(scope["headers"]) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"messages": [1.50, "\\ud83d\\ude00"]}', '{"messages":[1.50, "\\ud83d\\ude00"],"model":"auto"}'),
        ('{"model": "gpt-4o", "n": 1}', '{"model":"auto","n":1}'),
        ('{"model": null}', '{"model":"auto"}'),
    ],
)
def test_the_address_says_which_model(body: str, expected: str) -> None:
    """All other values keep their bytes."""
    made = of_deployment(body.encode(), JSON, "auto").decode()
    assert made == expected
    assert json.loads(made)["model"] == "auto"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"a": }', b"--part\r\n", b'{"\xff": 1}', b'{"x": ' + b"[" * 90_000]
)
def test_what_is_no_object_is_left_to_who_refuses_it(body: bytes) -> None:
    assert of_deployment(body, JSON, "auto") == body


FORM = "multipart/form-data; boundary=x"
PART = 'Content-Disposition: form-data; name="%s"\r\n\r\n%s\r\n--x'


@pytest.mark.parametrize("given", ["", "whisper-1"])
def test_the_address_says_it_of_a_form_too(given: str) -> None:
    fields = {"prompt": "Hm", **({"model": given} if given else {})}
    body = ("--x\r\n" + "\r\n".join(PART % field for field in fields.items()) + "--\r\n").encode()
    made = of_deployment(body, FORM, "listens")
    assert text_fields(made, find_fields(made, FORM)) == {"prompt": "Hm", "model": "listens"}


def test_what_is_no_form_is_left_to_who_refuses_it() -> None:
    assert of_deployment(b'{"model": "a"}', FORM, "listens") == b'{"model": "a"}'


def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidRequest, match="too many values"):
        of_deployment(b'{"x": [%b0]}' % (b"[]," * MOST.containers), JSON, "a")
