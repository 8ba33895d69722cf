"""Starts provider and gateway, prints one line of JSON saying where they are, and ends both when its input closes."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import httpx
from aiohttp import web

from tests.clients.service.provider import Provider
from tests.ports import free_port

START_SECONDS = 300.0
MODEL = "test-model"
CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends:
  provider:
    base_url: http://127.0.0.1:{port}/v1
    provider: openai   # whose list prices it carries
  ranker:
    base_url: http://127.0.0.1:{port}/v1
    provider: cohere
"""
RULES = f"""\
version: 1
models:
  {MODEL}:
    backend: provider
    upstream_model: gpt-5.4-mini
    context_window: 200000
    supports: [streaming, tools, json_schema, vision, reasoning]
  draws: {{backend: provider, upstream_model: gpt-image-2, context_window: 32000, supports: [images]}}
  speaks: {{backend: provider, upstream_model: gpt-4o-mini-tts, context_window: 32000, supports: [speech]}}
  listens: {{backend: provider, upstream_model: whisper-1, context_window: 32000, supports: [transcription]}}
  judges: {{backend: provider, upstream_model: omni-moderation-latest, context_window: 32000, supports: [moderation]}}
  ranks: {{backend: ranker, upstream_model: rerank-v3.5, context_window: 4096, supports: [rerank]}}
rules:
  - name: default
    choose: {{from: any}}
"""


async def serve(provider: Provider) -> None:
    runner = web.AppRunner(provider.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider_port, port = runner.addresses[0][1], free_port()
    with tempfile.TemporaryDirectory(prefix="breakeven-clients-") as folder:
        home = Path(folder)
        (home / "breakeven.yaml").write_text(CONFIGURATION.format(port=provider_port))
        (home / "rules.yaml").write_text(RULES)
        environment = {**_without_keys(os.environ), "BREAKEVEN_HOME": str(home)}
        command = [sys.executable, "-m", "gateway", "serve", "--port", str(port), "--no-ui"]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)
        try:
            await _until_ready(f"http://127.0.0.1:{port}/readyz", process)
            owner_key = await _create_owner(environment)
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {owner_key}"}, timeout=300) as client:
                keys = {
                    "owner_key": owner_key,
                    "key": await _create_key(client, port, "clients"),
                    "poor_key": await _create_key(client, port, "poor", budget_usd="0.000000001"),
                }
            print(json.dumps({"url": f"http://127.0.0.1:{port}", **keys, "model": MODEL}), flush=True)
            await asyncio.to_thread(sys.stdin.read)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
    await runner.cleanup()


def _without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """No provider of the person who runs the suite may be asked, or pay."""
    return {name: value for name, value in environ.items() if not name.endswith("_API_KEY")}


async def _until_ready(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
        while process.returncode is None:
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.1)
    raise SystemExit("the gateway ended before it was ready")


async def _create_owner(environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "gateway", "keys", "create", "--name", "owner", "--role", "owner", "--json"]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return str(json.loads(output)["key"])


async def _create_key(client: httpx.AsyncClient, port: int, name: str, **limits: str) -> str:
    url = f"http://127.0.0.1:{port}/admin/v1/keys"
    while (answer := await client.post(url, json={"name": name, "limits": limits})).status_code == 401:
        await asyncio.sleep(0.05)  # the gateway has not read the owner's key yet
    return str(answer.raise_for_status().json()["key"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-word", type=float, default=0.0, help="seconds before a stream's first word")
    parser.add_argument("--word", type=float, default=0.0, help="seconds before each other word")
    given = parser.parse_args()
    asyncio.run(serve(Provider(first_word_seconds=given.first_word, word_seconds=given.word)))


main()
