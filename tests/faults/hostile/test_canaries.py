"""Secrets and prompts never leak: hundreds of requests that pass and fail in every way, each full of canaries, go
through the whole gateway; then everything it wrote is searched for them."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path

import httpx
import pytest

from backends.scripted import Fault, Outcome
from backends.usage import Usage
from gateway.api.assemble import build_app
from gateway.composition.deployment import load_deployment
from gateway.composition.running import Gateway
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home, create_home
from gateway.routing.fallback import RetryPolicy
from gateway.stores import NewKey
from tests.live_server import serving
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.faults
REQUESTS = 1000
LEAST_OF_EACH = 250
AT_ONCE = 16
UPSTREAM_KEY = "sk-canary-of-the-provider"
PROMPT, ANSWER, TOOL = "canary-of-the-prompt", "canary-of-the-answer", "canary-of-a-tool"
WRONG_KEY, HEADER = "bk-canary-that-is-no-key", "canary-of-a-header"
CONFIG = """
engine: {{is_enabled: false}}
backends:
  first: {{base_url: "{url}/v1", api_key_env: CANARY_KEY, provider: openai, timeouts: {{idle_seconds: 5}}}}
"""
RULES = """
version: 1
models:
  visible-model-name: {backend: first, upstream_model: gpt-5.4-mini, context_window: 9999, supports: [streaming, tools]}
rules:
  - name: all
    choose: {from: [visible-model-name]}
"""
FAULTS: list[Fault] = [
    "rate_limited", "unavailable", "overloaded", "rejected", "auth", "reset", "truncated", "error_event", "garbage",
]  # fmt: skip
TALKATIVE = json.dumps({"error": {"message": f"{PROMPT} with {UPSTREAM_KEY}", "code": UPSTREAM_KEY, "param": PROMPT}})


def outcomes() -> list[Outcome | Raw]:
    """Good answers, every fault before and after the first piece, and providers that repeat everything they were
    sent."""
    pieces, usage = (ANSWER, " and ", ANSWER), Usage(input_tokens=5, output_tokens=3)
    good: list[Outcome | Raw] = [Outcome(pieces=pieces, usage=usage), Outcome(pieces=pieces, usage=None)]
    bad: list[Outcome | Raw] = [
        Outcome(pieces=pieces, fault=fault, fault_after_pieces=after) for fault in FAULTS for after in (0, 2)
    ]
    told: list[Outcome | Raw] = [
        Raw((TALKATIVE.encode(),), status=status, headers={"content-type": "application/json", "x-key": UPSTREAM_KEY})
        for status in (400, 401, 403, 404, 422, 429, 500, 503)
    ]
    event: list[Outcome | Raw] = [Raw((f"data: {TALKATIVE}\n\n".encode(),)), Raw((f"data: {ANSWER}\n\n".encode(),))]
    return [*good, *bad[:9], *good, *bad[9:], *good, *good, *told, *good, *good, *event, *good]


@asynccontextmanager
async def whole_gateway(root: Path, provider: ScriptedProvider) -> AsyncGenerator[tuple[Gateway, str]]:
    home = Home(root)
    create_home(home)
    home.config_file.write_text(CONFIG.format(url=provider.origin), encoding="utf-8")
    home.rules_file.write_text(RULES, encoding="utf-8")
    gateway = await open_gateway(load_deployment(home, environ={"CANARY_KEY": UPSTREAM_KEY}))
    await gateway.start()
    try:
        async with serving(build_app(gateway)) as url:
            yield gateway, url
    finally:
        await gateway.stop()


async def ask(client: httpx.AsyncClient, number: int, key: str) -> httpx.Response:
    body = {
        "model": "auto",
        "messages": [{"role": "user", "content": f"{PROMPT} {number}"}],
        "stream": number % 2 == 0,
        "tools": [{"type": "function", "function": {"name": TOOL, "parameters": {}}}] if number % 5 == 0 else None,
        "user": PROMPT,
        "metadata": {"secret": PROMPT},
    }
    content = json.dumps({name: value for name, value in body.items() if value is not None})
    if number % 50 == 7:
        content = content[:-9]
    if number % 50 == 8:
        content = content.replace('"messages": [', f'"max_tokens": "{PROMPT}", "messages": [')
    credential = WRONG_KEY if number % 25 == 3 else key
    headers = {"authorization": f"Bearer {credential}", "x-canary": HEADER, "content-type": "application/json"}
    return await client.post("/v1/chat/completions", content=content, headers=headers)


async def test_nothing_that_is_kept_or_shown_has_a_canary_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for room in ("gateway", "backends", "classifier"):
        caplog.set_level(logging.DEBUG, logger=room)
    async with ScriptedProvider(keeps_requests=False) as provider:
        provider.plan(islice(cycle(outcomes()), 3 * REQUESTS))
        async with whole_gateway(tmp_path, provider) as (gateway, url):
            _, secret = await gateway.stores.keys.create(NewKey("app"), author="test")
            await gateway.refresh()
            gateway.pipeline.retry_policy = RetryPolicy(first_wait_seconds=0.0)
            limit = asyncio.Semaphore(AT_ONCE)
            async with httpx.AsyncClient(base_url=url, timeout=120) as client:

                async def one(number: int) -> httpx.Response:
                    async with limit:
                        gateway.pipeline.upstreams.breakers.clear()  # otherwise most would be refused without a call
                        gateway.pipeline.upstreams.retry_budget.saved = 10.0
                        return await ask(client, number, secret)

                answers = await asyncio.gather(*(one(number) for number in range(REQUESTS)))
                # The outcomes of one request are random; these end in the same refusal however often it is retried.
                for refusal in (Outcome(fault="rate_limited"), Outcome(fault="overloaded")):
                    provider.plan([refusal] * RetryPolicy().max_attempts)
                    answers.append(await one(REQUESTS))
                shown = (await client.get("/metrics")).text
    failed = [answer for answer in answers if answer.status_code != 200]
    assert LEAST_OF_EACH < len(failed) < REQUESTS - LEAST_OF_EACH, "or too little was tried"
    assert {answer.status_code for answer in failed} >= {400, 401, 429, 502}
    canaries = [UPSTREAM_KEY, PROMPT, ANSWER, TOOL, WRONG_KEY, HEADER, secret]
    places = {
        "logs": caplog.text.encode(),
        "metrics": shown.encode(),
        "error bodies": b"".join(answer.content + repr(answer.headers).encode() for answer in failed),
        "broken streams": b"".join(_ending(answer) for answer in answers),
    }
    places |= kept_files(tmp_path)
    assert b"visible-model-name" in places["breakeven.db"] + places["metrics"], "the search finds what is there"
    found = {(place, canary) for place, kept in places.items() for canary in canaries if canary.encode() in kept}
    assert not found


def kept_files(root: Path) -> dict[str, bytes]:
    """Everything that the gateway left on disk: journal, database, keys."""
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _ending(answer: httpx.Response) -> bytes:
    """What the gateway itself said in a stream that broke."""
    return answer.content.rpartition(b"data: ")[2] if b"stream_broken" in answer.content else b""
