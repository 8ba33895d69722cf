"""What is asked of the tiny engine's server over and over."""

import json
from typing import Any

import httpx
from starlette.applications import Starlette

VOCABULARY = 258
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 4, "temperature": 0}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def client_of(app: Starlette) -> httpx.AsyncClient:
    """Faults of ours are answers, too."""
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
