"""A key works from the moment its creator gets the secret, whichever process created it."""

import asyncio
from pathlib import Path

import httpx
import pytest

from gateway.api.assemble import build_app
from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.composition.running import Gateway
from gateway.composition.wiring import open_gateway
from gateway.errors import Unauthenticated
from gateway.limits.budget_keeper import BudgetKeeper
from gateway.limits.openings import Opening
from gateway.limits.spending import Spending
from gateway.limits.values import window_id
from gateway.stores import NewKey
from tests.homes import new_home

pytestmark = pytest.mark.integration
PATHS = ("/v1/models", "/admin/v1/keys")


async def made(directory: Path) -> Gateway:
    home = new_home(directory / "home")
    return await open_gateway(load_deployment(home, environ={}))


async def opened(directory: Path) -> Gateway:
    gateway = await made(directory)
    await gateway.start()
    return gateway


async def test_a_key_that_is_revoked_while_a_worker_starts_is_refused_there_from_the_first_request(
    tmp_path: Path,
) -> None:
    """After reading the keys, it may ship its predecessor's journal for twenty seconds."""
    gateway = await made(tmp_path)
    key, secret = await gateway.stores.keys.create(NewKey("revoked"), author="test")

    class Slow(BudgetKeeper):
        async def start(self) -> None:
            assert gateway.key_ring.authenticate(secret, now_us()).id == key.record.id
            await gateway.stores.keys.revoke(key.record.id, author="test")
            await super().start()

    admission = gateway.pipeline.admission
    gateway.budgets = Slow(admission.treasury, Spending(gateway.stores.reports, admission, now_us))
    await gateway.start()
    try:
        with pytest.raises(Unauthenticated, match="was revoked"):
            gateway.key_ring.authenticate(secret, now_us())
    finally:
        await gateway.stop()


async def test_no_key_is_let_in_before_its_limits_and_what_it_had_spent_elsewhere_are_known(tmp_path: Path) -> None:
    """A request at that very moment used to spend uncounted money."""
    gateway = await opened(tmp_path)
    try:
        keys, admission = gateway.stores.keys, gateway.pipeline.admission
        window = window_id("month", now_us())
        made: list[tuple[str, str]] = []
        async with gateway.refreshing:  # or its watch may read a key in the moment before its opening is there
            for number in range(3):
                listed, secret = await keys.create(NewKey(f"{number}"), author="test", limits={"budget_usd": "5"})
                await gateway.stores.openings.set(Opening("key", listed.record.id, window, 7), author="test")
                made.append((listed.record.id, secret))
        refreshing = asyncio.create_task(gateway.refresh())
        while not refreshing.done():
            for key_id, secret in made:
                if gateway.key_ring.is_known(secret):
                    assert key_id in admission.limits
                    assert admission.openings["key", key_id, window] == 7
            await asyncio.sleep(0)
        assert all(gateway.key_ring.is_known(secret) for _, secret in made)
    finally:
        await gateway.stop()


async def test_a_key_and_its_next_secret_work_at_once(tmp_path: Path) -> None:
    """Created only in the database, as the command line does, without notifying the gateway."""
    gateway = await opened(tmp_path)
    try:
        transport = httpx.ASGITransport(build_app(gateway))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:

            async def statuses(secret: str) -> list[int]:
                headers = {"authorization": f"Bearer {secret}"}
                return [(await client.get(path, headers=headers)).status_code for path in PATHS]

            assert await statuses("bk-nobodys") == [401, 401]
            key, secret = await gateway.stores.keys.create(NewKey("new", role="owner"), author="test")
            assert await statuses(secret) == [200, 200]
            body = {"model": "nothing", "messages": [{"role": "user", "content": "hello"}]}
            rotated = await gateway.stores.secrets.rotate(key.record.id, author="test", overlap_seconds=3600)
            assert rotated is not None
            asked = await client.post("/v1/chat/completions", json=body, headers={"x-api-key": rotated.secret})
            assert asked.status_code == 404, "no such model; the key was let in"
    finally:
        await gateway.stop()
