"""What tests of several rooms share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres_server import run_postgres
from tests.redis_server import RedisServer

# The same examples at every run, on however slow a machine; tests.fuzzing is where new ones are looked for.
settings.register_profile(
    "same everywhere", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same everywhere")

# The servers of tests are on this machine: whoever reaches the world through a proxy reaches these without it.
for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def postgres_directory() -> Iterator[str]:
    """The socket directory of a running PostgreSQL server."""
    yield from run_postgres()


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """A running server, emptied."""
    running_redis.flush()
    return running_redis
