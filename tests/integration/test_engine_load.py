"""A vLLM that reports its load in its metrics: while requests wait there for capacity, new ones go elsewhere."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway.api.assemble import build_app
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home, create_home
from gateway.stores import NewKey
from tests.live_server import serving

PATIENCE_SECONDS = 120.0
METRICS = """vllm:num_requests_running{{engine="0",model_name="m"}} {running}.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="capacity"}} {waiting}.0
"""
CONFIG = """
engine: {{is_enabled: false}}
backends:
  own: {{base_url: "{url}/v1", health_from: vllm, max_running: 8, provider: openai}}
  elsewhere: {{base_url: "{url}/v1", provider: openai}}
"""
RULES = """
version: 1
models:
  own: {backend: own, upstream_model: gpt-5.4-mini, context_window: 9999}
  elsewhere: {backend: elsewhere, upstream_model: gpt-5.4-mini, context_window: 9999}
rules:
  - name: own-first
    choose: {from: [own, elsewhere], by: order}
"""


@dataclass(slots=True)
class Engine:
    running: int = 0
    waiting: int = 0

    async def metrics(self, _: Request) -> PlainTextResponse:
        return PlainTextResponse(METRICS.format(running=self.running, waiting=self.waiting))


async def test_a_full_vllm_overflows_and_is_chosen_again_when_it_has_room(tmp_path: Path) -> None:
    engine = Engine()
    async with serving(Starlette(routes=[Route("/metrics", engine.metrics)])) as upstream:
        create_home(home := Home(tmp_path))
        home.config_file.write_text(CONFIG.format(url=upstream), "utf-8")
        home.rules_file.write_text(RULES, "utf-8")
        gateway = await open_gateway(load_deployment(home, environ={}))
        await gateway.start()
        try:
            _, secret = await gateway.stores.keys.create(NewKey("app"), author="test")
            await gateway.refresh()
            headers = {"authorization": f"Bearer {secret}"}
            async with serving(build_app(gateway)) as url, httpx.AsyncClient(base_url=url, headers=headers) as client:
                await _until_chosen(client, "own")
                engine.running, engine.waiting = 8, 3
                await _until_chosen(client, "elsewhere")
                engine.waiting = 0
                engine.running = 7
                await _until_chosen(client, "own")
                engine.running = 8
                await _until_chosen(client, "elsewhere")
        finally:
            await gateway.stop()


async def _until_chosen(client: httpx.AsyncClient, model: str) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "How far?"}]}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await client.post("/v1/route", json=body, timeout=PATIENCE_SECONDS)).json()["model"] != model:
            await asyncio.sleep(0.05)
