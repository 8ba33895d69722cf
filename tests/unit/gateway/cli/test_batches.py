"""`breakeven batches` beside a gateway."""

import asyncio
import json
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.batches.values import Progress
from gateway.cli import build
from gateway.cli.state import open_state
from gateway.errors import NotFound
from gateway.ledger.entry import Entry
from gateway.money import format_usd
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.batches import SqlBatches
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.stores import open_files
from tests.unit.gateway.batches.builders import make_batch
from tests.unit.gateway.cli.commands import run_cli
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.usefixtures("month")


said = partial(run_cli, "batches")


async def fill() -> None:
    progress = Progress(total=1200, completed=40, failed=2, cost_pico_usd=1_250_000_000, unpriced=1)
    async with open_state() as state:
        store = SqlBatches(state.database, open_files(state.database, state.deployment.home))
        await store.create(make_batch(id="batch_a", status="in_progress", progress=progress, created_at_us=2))
        await store.create(make_batch(id="msgbatch_b", tenant="key 7", created_at_us=1))
        await store.create(make_batch(id="batch_c", status="completed", created_at_us=3))


async def audited() -> list[tuple[str, str]]:
    async with open_state() as state:
        return [(one.action, one.subject) for one in await SqlAuditLog(state.database).page(before=None, limit=1)]


def test_batches_of_every_team_are_listed_and_one_is_cancelled(month: Path) -> None:
    assert said("list") == "No batches.\n"
    asyncio.run(fill())
    rows = [json.loads(line) for line in said("list", "--json").splitlines()]
    assert [one["id"] for one in rows] == ["batch_c", "batch_a", "msgbatch_b"]
    assert (rows[1]["owner"], rows[1]["total"], rows[1]["completed"], rows[1]["failed"]) == ("team red", 1200, 40, 2)
    assert (rows[1]["cost_usd"], rows[1]["answers_without_price"]) == ("0.001250000000", 1)
    assert rows[1]["expires_at"] == "1970-01-02T00:00:00+00:00"
    table = said("list", "--under-way")
    assert "batch_c" not in table
    assert "0.00125 and more" in " ".join(table.split())

    assert said("cancel", "batch_a") == "batch_a is cancelling.\n"
    assert asyncio.run(audited()) == [("batch.cancel", "batch_a")]
    assert json.loads(said("cancel", "batch_c", "--json"))["status"] == "completed", "what is over stays as it ended"
    assert asyncio.run(audited()) == [("batch.cancel", "batch_a")], "nothing was changed"
    with pytest.raises(NotFound, match="There is no batch batch_x"):
        said("cancel", "batch_x")


def test_what_a_batch_came_to_is_told_in_a_sentence_and_its_requests_are_listed() -> None:
    def line(number: int, **given: Any) -> Entry:
        return make_entry(number, intent=make_intent(number, batch_id="batch_a"), **given)

    async def book(*lines: Entry) -> None:
        async with open_state() as state:
            await SqlLedger(state.database).insert(lines)

    assert said("cost", "batch_a") == "The ledger keeps no request of batch_a.\n"
    asyncio.run(book(line(1, cost=None)))
    assert said("cost", "batch_a") == "1 request: the price is unknown\n"
    asyncio.run(book(known := line(2)))
    assert known.cost is not None
    dollars = f"{Decimal(format_usd(known.cost.total_pico_usd)).normalize():f}"
    assert said("cost", "batch_a") == f"2 requests: ${dollars}, without 1 whose price is unknown\n"
    assert json.loads(said("cost", "batch_a", "--json"))["cost_usd"] == format_usd(known.cost.total_pico_usd)
    logs = CliRunner().invoke(build("logs"), ["logs", "--batch", "batch_a", "--json"], catch_exceptions=False)
    assert len(logs.stdout.splitlines()) == 2


def test_a_batch_of_which_no_price_is_known_did_not_cost_nothing() -> None:
    async def fill_one() -> None:
        async with open_state() as state:
            store = SqlBatches(state.database, open_files(state.database, state.deployment.home))
            await store.create(make_batch(id="batch_u", progress=Progress(total=3, completed=2, unpriced=2)))

    asyncio.run(fill_one())
    assert "unknown" in said("list")
