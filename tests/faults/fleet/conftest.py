"""The fleet shared by the tests of this folder: real PostgreSQL, real Redis, and a provider in its own process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet.months import until_a_month_has
from tests.faults.fleet.replica import Replica
from tests.faults.fleet.two_replicas import Fleet
from tests.postgres_server import empty_postgres
from tests.redis_server import RedisServer
from tests.scripted_provider.process import ProviderProcess, provider_process
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture(scope="package")
def provider() -> Iterator[ProviderProcess]:
    with provider_process("--pieces", "4", "--delay", "0.1") as process:
        yield process


@pytest.fixture(scope="package")
def running_fleet(
    provider: ProviderProcess,
    postgres_directory: str,
    running_redis: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    running_redis.flush()
    database = asyncio.run(empty_postgres(postgres_directory))
    root: Path = tmp_path_factory.mktemp("fleet")
    one, two = (
        Replica(root / name, provider=provider.url, database=database, redis=running_redis.url)
        for name in ("one", "two")
    )
    try:
        one.start()
        wait_until(one.owner_key, "no first keys")
        two.start()
        for replica in (one, two):
            replica.wait_until_ready()
        owner = one.owner_key()
        assert owner is not None
        assert two.owner_key() is None, "there were keys already"
        yield Fleet(one, two, provider, owner, postgres_directory)
    finally:
        for replica in (one, two):
            replica.terminate()
        for replica in (one, two):
            replica.wait()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Fleet:
    """The fleet with both replicas running, even if a previous test stopped one."""
    if not running_fleet.two.is_running:
        running_fleet.two.start()
        running_fleet.two.wait_until_ready()
    return running_fleet


@pytest.fixture
async def one_month() -> None:
    await until_a_month_has(PATIENCE_SECONDS)
