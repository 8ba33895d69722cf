"""Addresses at which clients of Azure and of other gateways ask for what OpenAI has behind `/v1`, as our own.

    /chat/completions and the like   /v1/...: a base_url without /v1, as LiteLLM's users have it
    /v2/rerank                       /v1/rerank: Cohere's clients
    /openai/v1/...                   /v1/...: Azure's newer address, and Groq's
    /openai/...                      /v1/...
    /openai/deployments/NAME/...     /v1/..., of the model NAME, whatever the body says: so it is at Azure

Azure's clients send their key as `api-key`; their `api-version` says nothing here.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.token_path import DEPLOYMENT, ENDPOINTS

API: Final = "/v1"
OURS: Final = f"{API}/"
AZURE: Final = "/openai/"
DEPLOYMENTS: Final = f"{AZURE}deployments/"
OF_DEPLOYMENTS: Final = sorted((place.removeprefix(API) for place in ENDPOINTS), key=len, reverse=True)
"""The longest first: a chat's address ends as a completion's does."""
BARE: Final = frozenset(end.split("/")[1] for end in OF_DEPLOYMENTS) | {"models", "files", "batches"}
"""What may stand first in an address without `/v1`."""
COHERES: Final = {"/v2/rerank": "/v1/rerank"}
KEY: Final = b"api-key"
KEYS: Final = frozenset({b"authorization", b"x-api-key"})


class OtherAddresses:
    """Wraps the application; what is asked at an address of ours passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(OURS):
            scope = _as_ours(scope)
        await self._app(scope, receive, send)


def _as_ours(scope: Scope) -> Scope:
    path: str = scope["path"]
    if path.startswith(AZURE):
        return _as_azures(scope)
    if path[1:].partition("/")[0] in BARE:
        return {**scope, "path": f"{API}{path}"}
    ours = COHERES.get(path)
    return scope if ours is None else {**scope, "path": ours}


def _as_azures(scope: Scope) -> Scope:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    given = dict(headers)
    if KEY in given and KEYS.isdisjoint(given):
        headers = [*headers, (b"x-api-key", given[KEY])]
    path, deployment = split_azures(scope["path"])
    named = {} if deployment is None else {DEPLOYMENT: deployment}
    return {**scope, "path": path, "headers": headers, **named}


def split_azures(path: str) -> tuple[str, str | None]:
    """Our address for one of Azure's, and the deployment that it names. A name may have slashes in it."""
    if path.startswith(DEPLOYMENTS):
        rest = path[len(DEPLOYMENTS) :].rstrip("/")
        end = next((one for one in OF_DEPLOYMENTS if rest.endswith(one)), None)
        if end is not None and (name := rest.removesuffix(end)):
            return f"{API}{end}", name
    rest = path[len(AZURE) - 1 :]
    return (rest if rest.startswith(OURS) else f"{API}{rest}"), None
