"""What tests of several rooms share."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from tests.forked_workers import run_forked
from tests.postgres_server import PostgresServer, run_postgres
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

TOGETHER = {
    "tests/browser/": "browser",
    "tests/engine/test_": "engine",
    "tests/faults/fleet/test_deaths": "fleet",
    "tests/faults/fleet/test_fleet": "fleet",
    "tests/faults/fleet/test_keys_of_litellm": "fleet",
    "tests/unit/local_engine/": "engine",
}
"""Files that share a browser with its servers, a fleet of six processes, or a model and transformers, which alone takes
as long to import as all that the other tests do: each worker that gets one of them makes all that anew."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="how many processes run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """A file to a worker, and what shares more than a file to one as well."""
    option = session.config.option
    if option.workers < 2 or option.collectonly or session.testsfailed:
        return None
    run_forked(session, option.workers, _what_it_shares)
    return True


def _what_it_shares(item: pytest.Item) -> str:
    file = item.nodeid.partition("::")[0]
    return next((name for start, name in TOGETHER.items() if file.startswith(start)), file)


@given(none())
def _first_property(_: None) -> None:
    """At the first one, Hypothesis searches for garbage, and through all there is for who refers to its generator."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nobody looks for garbage meanwhile: what is collected and imported stays, and the search was a fifth of it. The
    first property is before, while there is little to look through, and not once all is frozen: then, since Python
    3.14, nobody refers to anything."""
    _first_property()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """A twelfth to an eighth of the tests' CPU went on looking through collected tests and imported modules, which stay
    to the end, for garbage. What a test leaves is looked for as before, less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def hangups_end() -> Iterator[None]:
    """As in a terminal, for us and whom we start: who runs the tests under `nohup` has them ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def running_postgres() -> Iterator[PostgresServer]:
    yield from run_postgres()


@pytest.fixture(scope="session")
def postgres_directory(running_postgres: PostgresServer) -> str:
    """The socket directory of a running PostgreSQL server."""
    return running_postgres.directory


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """A running server, emptied."""
    running_redis.flush()
    return running_redis
