"""What tests of several rooms share."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

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

# Before anything imports torch, and for whom the tests start: its threads spin while they wait for each other, and here
# for one whose core another worker has.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

TOGETHER = ("tests/browser/", "tests/engine/test_")
"""Files that share a browser with its servers, or a model: each worker that gets one of them makes all that anew."""


class ByWhatIsShared(LoadFileScheduling):
    """A file to a worker, and what shares more than a file to one as well."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return ByWhatIsShared(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def hangups_end() -> Iterator[None]:
    """As in a terminal, for us and whom we start: who runs the tests under `nohup` has them ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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
