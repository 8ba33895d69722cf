"""Two replicas of two workers each, with one database and one Redis, as their tests use them."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx

from tests.faults.fleet.replica import Replica
from tests.scripted_provider.process import ProviderProcess
from tests.waiting import PATIENCE_SECONDS

WORKERS = 4
ENTRIES = "from entries e join dimensions d on d.id = e.dimension_id"
COST = (
    "coalesce(sum(e.input_pico_usd + e.cached_input_pico_usd + e.cache_write_pico_usd + e.output_pico_usd"
    " + e.other_pico_usd + e.compute_pico_usd), 0)::bigint"
)


@dataclass(frozen=True, slots=True)
class Fleet:
    one: Replica
    two: Replica
    provider: ProviderProcess
    owner: str
    socket_directory: str

    @property
    def urls(self) -> list[str]:
        return [self.one.url, self.two.url]

    def admin(self, method: str, path: str, *, at: Replica | None = None, **body: Any) -> Any:
        url = f"{(at or self.one).url}/admin/v1{path}"
        answer = httpx.request(
            method, url, headers={"authorization": f"Bearer {self.owner}"}, json=body or None, timeout=PATIENCE_SECONDS
        )
        assert answer.status_code < 300, answer.text
        return answer.json()

    def new_key(self, name: str, *, team: str | None = None, **limits: Any) -> tuple[str, str]:
        """The id and secret of a new key, which every worker knows when this returns."""
        made = self.admin("POST", "/keys", name=name, team=team, limits=limits)
        return made["id"], made["key"]

    async def rows(self, query: str, *values: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(host=self.socket_directory, user="postgres", database="postgres")
        try:
            return await connection.fetch(query, *values)
        finally:
            await connection.close()

    async def until_booked(self, count: int, where: str, *values: object) -> int:
        """Waits until there are at least that many entries; returns their number."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            [row] = await self.rows(f"select count(*) as count {ENTRIES} {where}", *values)
            if row["count"] >= count:
                return int(row["count"])
            assert time.monotonic() < deadline, f"{row['count']} of {count} entries are in the database"
            await asyncio.sleep(0.1)

    async def all_are_booked_once(self, request_ids: list[str]) -> None:
        assert len(set(request_ids)) == len(request_ids)
        ids = [bytes.fromhex(one) for one in request_ids]
        booked = await self.until_booked(len(ids), "where e.request_id = any($1)", ids)
        assert booked == len(ids)
