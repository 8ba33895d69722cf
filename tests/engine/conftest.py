"""The real weights, loaded once and freed after the last test here, since with their caches they take gigabytes; the
reference is transformers with the same float32 tensors."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import torch

from local_engine.assembly import Compute, Engine, assemble
from local_engine.attention.cpu import CpuAttention
from local_engine.config import EngineConfig
from local_engine.layers.linear import DenseLinear
from local_engine.loading.gguf_loader import load_gguf
from local_engine.loading.weights import LoadedFile, WeightSource
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.native.native_decoder import NativeDecoder, can_run
from local_engine.native.native_runner import NativeRunner
from local_engine.request import Request
from local_engine.sampling.sampler import Sampler
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.steps import DirectSteps
from tests.weights import fetch_weights

EngineBuilder = Callable[..., Engine]
# The same tests on a GPU: BREAKEVEN_TEST_DEVICE=cuda python -m pytest tests/engine/test_exactness.py
DEVICE = os.environ.get("BREAKEVEN_TEST_DEVICE", "cpu")
# A LlamaForCausalLM of transformers, which only its fixture imports: that takes as long as importing torch, and not
# every worker that loads this file needs it.
Reference: TypeAlias = Any


@pytest.fixture(scope="session")
def model_path() -> Path:
    """SmolLM2-135M-Instruct, downloaded once."""
    return fetch_weights()


class KeptWeights:
    """Tensors dequantised once for all engines."""

    def __init__(self, weights: WeightSource) -> None:
        self._weights = weights
        self._kept: dict[str, torch.Tensor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        if name not in self._kept:
            self._kept[name] = self._weights.tensor(name)
        return self._kept[name]


@pytest.fixture(scope="package")
def loaded(model_path: Path) -> LoadedFile:
    """The opened file."""
    file = load_gguf(model_path)
    return replace(file, weights=KeptWeights(file.weights))


@pytest.fixture(scope="package")
def model(loaded: LoadedFile) -> DecoderModel:
    """The float32 model with torch's products, for engines that the native decoder does not support."""
    return DecoderModel(
        loaded.config, loaded.weights, build_linear=DenseLinear, attention=CpuAttention(), context_window=4096
    )


@pytest.fixture(scope="package")
def native(loaded: LoadedFile) -> Callable[[Literal["float32", "int8"]], NativeDecoder]:
    """The model in the native decoder, packed once in each format."""

    @cache
    def packed(weights: Literal["float32", "int8"]) -> NativeDecoder:
        return NativeDecoder(loaded, weights, context_window=4096)

    return packed


@pytest.fixture(scope="package")
def shared_compute(
    loaded: LoadedFile, model: DecoderModel, native: Callable[[Literal["float32", "int8"]], NativeDecoder]
) -> Callable[[EngineConfig], Compute | None]:
    """Computes with the shared model where that computes what the engine's own would."""

    def compute(config: EngineConfig) -> Compute | None:
        if config.device != "cpu" or config.weights not in ("float32", "int8"):
            return None
        assert config.kv_blocks is not None
        if can_run(loaded.config, config.block_size):
            runner = NativeRunner(native(config.weights), blocks=config.kv_blocks)
        elif config.weights == "int8":
            return None
        else:
            runner = ModelRunner(
                model,
                blocks=config.kv_blocks,
                block_size=config.block_size,
                kv_dtype=torch.float32,
                is_deterministic=config.is_deterministic,
            )
        return Compute(runner, DirectSteps(runner, Sampler(runner.device)))

    return compute


@pytest.fixture(scope="package")
def build(loaded: LoadedFile, shared_compute: Callable[[EngineConfig], Compute | None]) -> EngineBuilder:
    """Builds an engine; equal configurations share an engine, and all of one format the model."""
    built: dict[EngineConfig, Engine] = {}

    def engine(**changes: object) -> Engine:
        defaults: dict[str, object] = {"kv_blocks": 1024, "context_window": 4096, "device": DEVICE}
        config = EngineConfig(**(defaults | changes))  # pyright: ignore[reportArgumentType]
        if config not in built:
            built[config] = assemble(loaded, config, compute=shared_compute(config))
        return built[config]

    return engine


@pytest.fixture(scope="package")
def reference(loaded: LoadedFile) -> Reference:
    """transformers' Llama in float32, with the file's dequantised tensors."""
    from benchmarks.engine_cpu.transformers_rival import build

    return build(loaded)


def greedy(prompt: list[int], *, tokens: int = 24, name: str = "r", **changes: object) -> Request:
    """A greedy request that runs to its maximum length."""
    params: dict[str, object] = {"temperature": 0.0, "max_tokens": tokens} | changes
    return Request(name, prompt, SamplingParams(**params))  # pyright: ignore[reportArgumentType]


def run(engine: Engine, requests: list[Request], *, stagger: int = 0) -> list[list[int]]:
    """Runs requests to completion, started `stagger` steps apart; returns their output ids."""
    for request in requests:
        engine.core.add(request)
        for _ in range(stagger):
            engine.core.step()
    while engine.core.has_work:
        engine.core.step()
    return [request.output_token_ids for request in requests]


@pytest.fixture(scope="session", autouse=True)
def _few_threads(request: pytest.FixtureRequest) -> None:
    """At most two threads, and one beside other test processes: threads waiting for a busy core spin and slow all
    down."""
    torch.set_num_threads(min(1 if request.config.option.workers > 1 else 2, torch.get_num_threads()))
