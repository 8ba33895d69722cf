"""Fixtures and hooks for the whole suite."""

import gc
import os
import signal
import ssl
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import certifi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from tests.forked_workers import run_forked
from tests.postgres_server import PostgresServer, run_postgres
from tests.redis_fleets import RedisCluster
from tests.redis_server import RedisServer

# The same examples in every run, however slow the machine; tests.fuzzing searches for new ones.
settings.register_profile(
    "same everywhere",
    max_examples=45,  # finds the mutants that 100 find (docs/decisions/what-the-tests-cost.md)
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same everywhere")

# The tests' servers are on this machine, so they are reached without the proxy that the environment may name.
for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
    del os.environ[name]

# Before anything imports torch, and inherited by child processes: its threads spin while they wait for each other, here
# possibly for one whose core another worker uses.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Every client of httpx reads 140 authorities first, 0.02 s of CPU: all in this process that ask for no more share them.
_new_context, _shared_context = ssl.create_default_context, cache(ssl.create_default_context)


def _context(*args: Any, **asked: Any) -> ssl.SSLContext:
    return (_shared_context if not args and asked == {"cafile": certifi.where()} else _new_context)(*args, **asked)


ssl.create_default_context = _context

TOGETHER = {
    "tests/browser/": "browser",
    "tests/engine/test_": "engine",
    "tests/faults/fleet/test_": "fleet",
    "tests/unit/local_engine/": "engine",
}
"""Files that share a browser with its servers, a fleet of six processes, or a model and transformers (which takes as
long to import as everything else together): every worker that runs one of them has to set this up again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="how many processes run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Distributes the tests to workers by file, or by group for files that share more."""
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
    """Runs one property early: for the first one, Hypothesis collects garbage, and searches all objects for references
    to its random generator."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables garbage collection meanwhile, which took a fifth of the time: collected tests and imported modules stay.
    The first property runs before, while there are few objects to search, not after all are frozen: since Python 3.14
    no references are found then."""
    _first_property()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Excludes collected tests and imported modules, which stay to the end, from garbage collection: examining them
    took a twelfth to an eighth of the tests' CPU. Garbage of the tests is still collected, less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def hangups_end() -> Iterator[None]:
    """Restores SIGHUP's default, as in a terminal, for us and our children: under `nohup` it would be ignored."""
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


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(running_cluster: RedisCluster) -> RedisCluster:
    """A running cluster, emptied."""
    running_cluster.flush()
    return running_cluster


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """A running server, emptied."""
    running_redis.flush()
    return running_redis
