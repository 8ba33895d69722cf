"""benchmarks.engine_soak for a few seconds: long enough for requests to evict each other from the cache."""

from collections.abc import Callable

import pytest

from benchmarks import engine_soak
from local_engine.assembly import Compute, assemble
from local_engine.config import EngineConfig
from local_engine.loading.weights import LoadedFile

pytestmark = pytest.mark.engine


def test_clients_that_come_and_go_leak_nothing_and_get_the_right_tokens(
    loaded: LoadedFile, shared_compute: Callable[[EngineConfig], Compute | None]
) -> None:
    config = engine_soak.config(engine_soak.best_weights(), kv_blocks=48)
    engine = assemble(loaded, config, compute=shared_compute(config))
    report = engine_soak.run(engine, 5.0, long_tokens=300, progress=lambda _: None)
    assert report.answers > 0
    assert report.left_early > 0
    assert report.preemptions > 0
    assert [bar for bar in engine_soak.bars(report) if not bar.holds] == []
