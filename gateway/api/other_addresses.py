"""Rewrites the paths that clients of other APIs and gateways use to our own.

    /chat/completions and the like   /v1/...: a base_url without /v1, as LiteLLM's users have
    /v2/rerank                       /v1/rerank: Cohere's clients
    /openai/v1/...                   /v1/...: Azure's newer path, and Groq's
    /openai/...                      /v1/...
    /openai/deployments/NAME/...     /v1/... for the model NAME, whatever the body says, as at Azure
    /cursor/..., /cursor/v1/...      /v1/..., with chats as Cursor sends them
    /v1beta/openai/...               /v1/...: Google's path for OpenAI clients
    /v1beta/models/NAME:METHOD       /v1/models:METHOD for the model NAME: Gemini's clients
    /v1/models/NAME:METHOD           the same: its newer clients
    /v1beta/models                   /v1/models

Azure's clients send their key as `api-key`, Google's as `x-goog-api-key` or in the query string, from which it is
removed; Azure's `api-version` is ignored.
"""

from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.addresses import GEMINIS
from gateway.api.gemini import ENDPOINTS as CONTENTS
from gateway.api.gemini import GOOGLES, GOOGLES_KEY, MODELS, ContentCall
from gateway.api.messages import ENDPOINTS as MESSAGES
from gateway.api.token_path import CONTENT_CALL, CURSOR, DEPLOYMENT, ENDPOINTS, LITELLMS_KEY

API: Final = "/v1"
OURS: Final = f"{API}/"
AZURE: Final = "/openai/"
DEPLOYMENTS: Final = f"{AZURE}deployments/"
OF_DEPLOYMENTS: Final = sorted((place.removeprefix(API) for place in ENDPOINTS), key=len, reverse=True)
"""Longest first: `/chat/completions` also ends in `/completions`."""
BARE: Final = frozenset(end.split("/")[1] for end in OF_DEPLOYMENTS) | {"models", "files", "batches", "conversations"}
"""First path segments that are accepted without `/v1`."""
COHERES: Final = {"/v2/rerank": "/v1/rerank"}
KEY: Final = b"api-key"
GEMINIS_OPENAI: Final = "/v1beta/openai/"
CURSORS: Final = "/cursor/"
CHATS: Final = f"{API}/chat/completions"
METHODS: Final = tuple(place.removeprefix(MODELS) for place in CONTENTS)
IN_QUERY: Final = b"key="
OTHERS: Final = ENDPOINTS.keys() | MESSAGES.keys()
"""Paths that Google's clients never use; being the busiest ones, they skip the checks below."""
KEYS: Final = frozenset({b"authorization", b"x-api-key", LITELLMS_KEY})


class OtherAddresses:
    """Wraps the application; requests at our own paths pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            path: str = scope["path"]
            if not path.startswith(OURS):
                scope = _as_ours(scope)
            elif path not in OTHERS and (path.startswith(MODELS) or GOOGLES_KEY in dict(scope["headers"])):
                scope = _as_googles(scope)
        await self._app(scope, receive, send)


def _as_ours(scope: Scope) -> Scope:
    path: str = scope["path"]
    if path.startswith(AZURE):
        return _as_azures(scope)
    if path.startswith(CURSORS):
        ours = f"{API}/{path.removeprefix(CURSORS).removeprefix('v1/')}"
        return {**scope, "path": ours} | ({CURSOR: True} if ours == CHATS else {})
    if path.startswith(GEMINIS_OPENAI):
        return {**scope, "path": f"{OURS}{path.removeprefix(GEMINIS_OPENAI)}"}
    if path.startswith(GEMINIS):
        return _as_googles(scope)
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


def _as_googles(scope: Scope) -> Scope:
    """At `/v1/models` only requests in the form of Google's clients are changed: other clients use that path too."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    given, path = dict(headers), scope["path"]
    place, model = split_googles(path)
    query: bytes = scope.get("query_string", b"")
    if place is None and path.startswith(OURS) and GOOGLES_KEY not in given and IN_QUERY not in query:
        return scope
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    asked = dict(pairs)
    if "key" in asked:
        query = urlencode([pair for pair in pairs if pair[0] != "key"]).encode()
    key = given.get(GOOGLES_KEY) or asked.get("key", "").encode("latin-1", "replace")
    if key and KEYS.isdisjoint(given):
        headers = [*headers, (b"x-api-key", key)]
    changed = {**scope, "path": place or _listed(path), "headers": headers, "query_string": query, GOOGLES: True}
    if place is None:
        return changed
    return {**changed, CONTENT_CALL: ContentCall(model, is_listed=asked.get("alt") != "sse")}


def _listed(path: str) -> str:
    """Our path for Google's listing of models, or for one model; any other path stays as it is, and is not found."""
    rest = next((path.removeprefix(f"{version}models") for version in GEMINIS if path.startswith(version)), path)
    return f"{MODELS}{rest}" if rest == "" or (rest != path and rest.startswith("/")) else path


def split_googles(path: str) -> tuple[str | None, str]:
    """(our path, model) for a Gemini method call; (None, "") for other paths. Model names may contain slashes and
    colons."""
    base = next((f"{version}models/" for version in (OURS, *GEMINIS) if path.startswith(f"{version}models/")), None)
    if base is None or not path.endswith(METHODS):
        return None, ""
    model, _, method = path[len(base) :].rpartition(":")
    return f"{MODELS}:{method}", model


def split_azures(path: str) -> tuple[str, str | None]:
    """Our path for one of Azure's, and the deployment it names, if any. Deployment names may contain slashes."""
    if path.startswith(DEPLOYMENTS):
        rest = path[len(DEPLOYMENTS) :].rstrip("/")
        end = next((one for one in OF_DEPLOYMENTS if rest.endswith(one)), None)
        if end is not None and (name := rest.removesuffix(end)):
            return f"{API}{end}", name
    rest = path[len(AZURE) - 1 :]
    return (rest if rest.startswith(OURS) else f"{API}{rest}"), None
