"""Two replicas of one worker each, the keys and budgets that callers use, and the wait until all answers are booked."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gateway.money import format_usd
from tests.faults.fleet.chaos.callers import Budget
from tests.faults.fleet.replica import Replica
from tests.waiting import PATIENCE_SECONDS

PRICED_AS = ("openai", "gpt-5.4-mini")
CONFIGURATION = """\
server: {{budget_wait_seconds: 2}}
engine: {{is_enabled: false}}
simulated_hosted: never
backends:
  provider:
    base_url: {provider}
    provider: openai
"""
RULES = """\
version: 1
models:
  plain: {backend: provider, upstream_model: plain, priced_as: openai/gpt-5.4-mini, context_window: 200000}
  spare: {backend: provider, upstream_model: spare, priced_as: openai/gpt-5.4-mini, context_window: 200000}
rules:
  - name: default
    choose: {from: [plain, spare], by: order}
"""
OPEN = ("breakeven_ledger_open_intents", "breakeven_ledger_unshipped_entries")


@dataclass(frozen=True, slots=True)
class Fleet:
    replicas: Sequence[Replica]
    owner: str

    async def admin(self, method: str, path: str, *, at: int = 0, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {self.owner}"}
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False, headers=headers) as client:
            url = f"{self.replicas[at].url}/admin/v1{path}"
            answer = await client.request(method, url, json=body or None)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def make_budgets(self, count: int, limit_pico_usd: int) -> list[Budget]:
        """Makes budgets, every other one for a team with two keys. Both replicas know them when this returns."""
        made: list[Budget] = []
        for number in range(count):
            usd = format_usd(limit_pico_usd)
            if number % 2:
                team = f"team-{number}"
                await self.admin("PUT", "/budgets", scope="team", name=team, month_usd=usd, stops=True)
                keys = [await self._new_key(f"{team}-{key}", team=team) for key in range(2)]
                made.append(Budget(team, tuple(secret for _, secret in keys), limit_pico_usd))
            else:
                key_id, secret = await self._new_key(f"key-{number}", limits={"budget_usd": usd})
                made.append(Budget(key_id, (secret,), limit_pico_usd))
        await self._until_known(made[-1].keys[-1])
        return made

    async def make_free_key(self) -> Budget:
        key_id, secret = await self._new_key("free")
        await self._until_known(secret)
        return Budget(key_id, (secret,))

    async def until_booked(self) -> list[str]:
        """Waits until nothing is open and everything is in the database; returns the total cost that each replica
        reports."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for replica in self.replicas:
            while left := await _left(replica.url):
                assert time.monotonic() < deadline, f"{replica.url} has {left}"
                await asyncio.sleep(0.1)
        reports = [await self.admin("GET", "/reports/costs?by=model", at=at) for at in range(len(self.replicas))]
        return [str(report["total"]["cost_usd"]) for report in reports]

    async def _new_key(self, name: str, **fields: Any) -> tuple[str, str]:
        made = await self.admin("POST", "/keys", name=name, **fields)
        return made["id"], made["key"]

    async def _until_known(self, secret: str) -> None:
        """Changes arrive in their order: a replica that knows the last one knows the others."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False) as client:
            for replica in self.replicas:
                headers = {"authorization": f"Bearer {secret}"}
                while (await client.get(f"{replica.url}/v1/models", headers=headers)).status_code != 200:
                    assert time.monotonic() < deadline, f"{replica.url} does not hear of new keys"
                    await asyncio.sleep(0.05)


@asynccontextmanager
async def running_fleet(root: Path, *, provider: str, database: str, redis: str) -> AsyncGenerator[Fleet]:
    """A fleet whose replicas start at the same time, on an empty database."""
    replicas = [
        Replica(
            root / name,
            provider=provider,
            database=database,
            redis=redis,
            workers=1,
            configuration=CONFIGURATION,
            rules=RULES,
        )
        for name in ("one", "two")
    ]
    try:
        for replica in replicas:
            replica.start()
        for replica in replicas:
            await asyncio.to_thread(replica.wait_until_ready)
        [owner] = [key for replica in replicas if (key := replica.owner_key())]
        yield Fleet(replicas, owner)
    finally:
        for replica in replicas:
            replica.terminate()
        for replica in replicas:
            await asyncio.to_thread(replica.wait)


async def _left(url: str) -> dict[str, float]:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False) as client:
        text = (await client.get(f"{url}/metrics")).text
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {one.name: one.value for one in samples if one.name in OPEN and one.value}
