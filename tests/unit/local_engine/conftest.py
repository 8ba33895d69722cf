"""A tiny random model, a client of its in-process server, and the native decoder."""

import ctypes
from collections.abc import AsyncIterator

import httpx
import pytest

from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.native.build import compile_decoder, load_decoder
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


# In a fixture, because compiling it, if necessary, takes half a minute, for which no test process should wait while it
# collects.
@pytest.fixture(scope="session")
def decoder() -> ctypes.CDLL:
    found = load_decoder()
    return found or pytest.skip("needs a C++ compiler, and AVX2 or ARM: install g++")


@pytest.fixture
def library(request: pytest.FixtureRequest, decoder: ctypes.CDLL) -> ctypes.CDLL:
    """The decoder compiled for the instruction set of the test's parameter."""
    found = compile_decoder(request.param)
    assert found is not None
    return found
