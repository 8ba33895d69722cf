"""Common requests to the tiny engine's server."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from starlette.applications import Starlette

from local_engine.assembly import Engine
from local_engine.async_engine import AsyncEngine
from local_engine.server.openai_server import build_app

VOCABULARY = 258
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 4, "temperature": 0}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def allowed(mode: str, name: str) -> dict[str, Any]:
    """A `tool_choice` of one of the tools."""
    tool = {"type": "function", "function": {"name": name}}
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool]}}


@asynccontextmanager
async def served(engine: Engine, **parts: Any) -> AsyncGenerator[tuple[AsyncEngine, httpx.AsyncClient]]:
    """A running engine with some parts replaced, and a client of its server."""
    running = engine.serve()
    running.start()
    async with client_of(build_app(running, replace(engine, **parts), model_name="tiny")) as client:
        yield running, client
    await running.stop()


def client_of(app: Starlette) -> httpx.AsyncClient:
    """A client for which our own faults are answers, not exceptions."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=300)


async def chat(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json=HI | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def complete(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=TEXT | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def streamed(client: httpx.AsyncClient, **changes: Any) -> list[dict[str, Any]]:
    answer = await client.post("/v1/completions", json=TEXT | changes | {"stream": True})
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]
