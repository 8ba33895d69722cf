"""A tiny random model, and a client of its server in this process."""

from collections.abc import AsyncIterator

import httpx
import pytest

from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.loading.safetensors_loader import load_safetensors
from tests.unit.local_engine.asking import served
from tests.unit.local_engine.tiny_models import make_model, write_folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = write_folder(make_model("qwen2"), tmp_path_factory.mktemp("model"))
    config = EngineConfig(kv_blocks=64, context_window=128, max_running_requests=4, max_waiting_requests=4)
    return assemble(load_safetensors(folder), config)


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    async with served(engine) as (_, made):
        yield made
