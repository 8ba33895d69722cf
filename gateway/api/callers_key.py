"""Authenticates calls outside the token path, before their body is read."""

from typing import Any

from fastapi import Depends, Request

from gateway.access.keys import KeyRecord, require_model_access
from gateway.api.token_path import credential_of
from gateway.ledger.entry import tenant_of
from gateway.pipeline import Pipeline


def known_first(pipeline: Pipeline) -> Any:
    """A dependency for a router whose bodies FastAPI checks: a stranger is told 401, and nothing of its body."""

    def known(request: Request) -> None:
        pipeline.keys.authenticate(credential_of(request.scope["headers"]), pipeline.now_us())

    return Depends(known)


async def key_of_caller(pipeline: Pipeline, request: Request) -> KeyRecord:
    """A key that may call models and is within its rates. Raises Unauthenticated, Forbidden or RateLimitExceeded."""
    key = pipeline.keys.authenticate(credential_of(request.scope["headers"]), pipeline.now_us())
    require_model_access(key)
    await pipeline.admission.admit(key.id, team=key.team, tokens=0)
    return key


async def tenant_of_caller(pipeline: Pipeline, request: Request) -> str:
    """The owner of the files, batches and conversations that the caller sees. Raises as `key_of_caller`."""
    key = await key_of_caller(pipeline, request)
    return tenant_of(key.team, key.id)
