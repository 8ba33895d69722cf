"""Asks a block of breakeven.yaml that a scripted provider stands behind."""

import json
from collections.abc import Mapping
from typing import Any

from backends.protocol import Call, Chunk, Operation
from gateway.composition.backend_table import build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from tests.scripted_provider import Raw, ScriptedProvider

JSON = {"content-type": "application/json"}
CURVE = fit_engine(ASSUMED)


async def ask_block(
    block: Mapping[str, object],
    operation: Operation,
    body: object,
    *,
    answer: object = None,
    model: str = "m",
    reasons: bool = False,
) -> tuple[ScriptedProvider, Chunk]:
    """The provider, which knows what it received, and the last chunk. It answers `answer`, or as it does by itself."""
    said = () if answer is None else (Raw((json.dumps(answer).encode(),), headers=JSON),)
    async with ScriptedProvider(*said) as provider:
        mine: dict[str, Any] = {"mine": {"base_url": provider.base_url, **block}}
        settings = Settings.model_validate({"simulated_hosted": "never", "backends": mine})
        backend = build_backend_table(settings, {}, None, CURVE).adapters["mine"]
        reply = await backend.open(Call(operation, model, json.dumps(body).encode(), False, "r-1", reasons=reasons))
        chunks = [chunk async for chunk in reply]
        await backend.aclose()
    return provider, chunks[-1]
