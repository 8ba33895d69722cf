"""Other addresses are ours: which, of which model, with which key; and what is asked elsewhere passes untouched."""

import json
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from backends.formats.form_splice import find_fields, text_fields
from backends.protocol import JSON
from gateway.api.app import POSTED
from gateway.api.other_addresses import OtherAddresses, split_azures
from gateway.api.shedding import API
from gateway.api.token_path import DEPLOYMENT, credential_of, of_deployment


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
        ("/openai/models", "/v1/models", None),
        ("/openai/deployments//chat/completions", "/v1/deployments//chat/completions", None),
        ("/openai/deployments/auto/extensions/chat", "/v1/deployments/auto/extensions/chat", None),
    ],
)
def test_each_address_of_azures_is_one_of_ours(asked: str, path: str, deployment: str | None) -> None:
    assert split_azures(asked) == (path, deployment)


async def seen(path: str, *headers: tuple[bytes, bytes]) -> tuple[Scope, Scope]:
    """The scope that was sent in, and what the application saw."""
    came: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        came.append(scope)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    sent: Scope = {"type": "http", "path": path, "headers": list(headers)}
    await OtherAddresses(app)(sent, nothing, nothing)
    return sent, came[0]


async def test_the_key_comes_as_azures_clients_send_it() -> None:
    _, scope = await seen("/openai/deployments/auto/chat/completions", (b"api-key", b"bk-1"))
    assert credential_of(scope["headers"]) == "bk-1"
    assert (scope["path"], scope[DEPLOYMENT]) == ("/v1/chat/completions", "auto")


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


async def test_coheres_clients_rank() -> None:
    _, scope = await seen("/v2/rerank")
    assert scope["path"] == "/v1/rerank"
    _, scope = await seen("/rerank")
    assert scope["path"] == "/v1/rerank"


def test_whatever_is_answered_stands_where_calls_are_bounded() -> None:
    """Calls elsewhere would be neither shed nor counted."""
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
    """And every other value keeps its bytes."""
    made = of_deployment(body.encode(), JSON, "auto").decode()
    assert made == expected
    assert json.loads(made)["model"] == "auto"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": }', b"--part\r\n"])
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
