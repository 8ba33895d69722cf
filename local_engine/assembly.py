"""Puts one engine together from a model file and a configuration. The only place that names concrete classes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from local_engine.async_engine import AsyncEngine
from local_engine.attention.cpu import CpuAttention
from local_engine.block_pool import BlockPool
from local_engine.config import EngineConfig, ModelConfig, WeightFormat
from local_engine.constraints import ConstraintCompiler
from local_engine.engine_core import EngineCore, Runner
from local_engine.errors import DoesNotFit
from local_engine.gguf_loader import load_gguf
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.layers.int8_linear import Int8Linear
from local_engine.layers.linear import DenseLinear, LinearBuilder
from local_engine.metrics import EngineMetrics
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.native.int8_runner import Int8Runner, can_run
from local_engine.safetensors_loader import load_safetensors
from local_engine.scheduler import Scheduler
from local_engine.tokenizer import Tokenizer
from local_engine.weights import LoadedFile

DETERMINISTIC_CHUNK = 128
BYTES_PER_WEIGHT: dict[WeightFormat, int] = {"float32": 4, "int8": 1}


@dataclass(frozen=True, slots=True)
class Engine:
    """A core with the parts that others ask about."""

    core: EngineCore
    kv_cache: KvCacheManager
    tokenizer: Tokenizer
    constraints: ConstraintCompiler
    model: ModelConfig
    config: EngineConfig
    context_window: int

    def serve(self, metrics: EngineMetrics | None = None) -> AsyncEngine:
        """Wrap the core for asyncio."""
        return AsyncEngine(
            self.core,
            self.kv_cache,
            metrics or EngineMetrics(),
            context_window=self.context_window,
            max_running_requests=self.config.max_running_requests,
            max_waiting_requests=self.config.max_waiting_requests,
            stall_seconds=self.config.stall_seconds,
        )


def build_engine(path: Path, config: EngineConfig, *, progress: Callable[[str], None] | None = None) -> Engine:
    """Load a model and build its engine; raises ModelUnavailable, ModelUnsupported or DoesNotFit."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    return assemble(load_model(path), config, progress=progress)


def load_model(path: Path) -> LoadedFile:
    """Open a GGUF file or a folder of safetensors."""
    return load_safetensors(path) if path.is_dir() else load_gguf(path)


def linear_builder(weights: WeightFormat) -> LinearBuilder:
    """The class that holds matrices in this format."""
    return {"float32": DenseLinear, "int8": Int8Linear}[weights]


def assemble(loaded: LoadedFile, config: EngineConfig, *, progress: Callable[[str], None] | None = None) -> Engine:
    """Build an engine around weights that are open already."""
    context_window = min(config.context_window or loaded.config.context_window, loaded.config.context_window)
    blocks = plan_blocks(loaded.config, config, context_window)
    # A cached prefix, or a draft, would change the pieces in which a request is computed.
    is_deterministic = config.is_deterministic
    kv_cache = KvCacheManager(
        BlockPool(blocks),
        block_size=config.block_size,
        has_prefix_cache=config.has_prefix_cache and not is_deterministic,
    )
    runner = build_cpu_runner(loaded, config, blocks, context_window, _layer_progress(progress))
    scheduler = Scheduler(
        kv_cache,
        max_running_requests=config.max_running_requests,
        max_tokens_per_step=max(config.max_tokens_per_step, DETERMINISTIC_CHUNK if is_deterministic else 1),
        chunk_alignment=DETERMINISTIC_CHUNK if is_deterministic else None,
    )
    constraints = ConstraintCompiler(loaded.tokenizer, loaded.config.vocabulary_size)
    core = EngineCore(
        runner,
        scheduler,
        loaded.tokenizer,
        context_window=context_window,
        constraints=constraints,
        speculative_tokens=0 if is_deterministic else config.speculative_tokens,
    )
    return Engine(core, kv_cache, loaded.tokenizer, constraints, loaded.config, config, context_window)


def build_cpu_runner(
    loaded: LoadedFile,
    config: EngineConfig,
    blocks: int,
    context_window: int,
    progress: Callable[[int, int], None] | None = None,
) -> Runner:
    """The native decoder for int8 where this machine and model suit it, else our own layers out of torch's products."""
    if config.weights == "int8" and can_run(loaded.config, config.block_size):
        return Int8Runner(
            loaded.config, loaded.weights, blocks=blocks, context_window=context_window, progress=progress
        )
    model = DecoderModel(
        loaded.config,
        loaded.weights,
        build_linear=linear_builder(config.weights),
        attention=CpuAttention(),
        context_window=context_window,
        progress=progress,
    )
    return ModelRunner(
        model,
        blocks=blocks,
        block_size=config.block_size,
        kv_dtype=torch.float32,
        is_deterministic=config.is_deterministic,
    )


def plan_blocks(model: ModelConfig, config: EngineConfig, context_window: int) -> int:
    """KV-cache blocks: as configured, else for every request a quarter of the window and for one the whole.

    Raises DoesNotFit, with the numbers, when weights and KV cache exceed the machine's memory.
    """
    if config.kv_blocks is not None:
        blocks = config.kv_blocks
    else:
        tokens = max(context_window, config.max_running_requests * context_window // 4)
        blocks = -(-tokens // config.block_size)
    kv_bytes = blocks * config.block_size * model.kv_bytes_per_token(4)
    # The embedding table stays float32; where it is also the output head, that one is counted as a matrix.
    embedding_bytes = 0 if config.weights == "float32" else 4 * model.vocabulary_size * model.hidden_size
    weight_bytes = model.parameters * BYTES_PER_WEIGHT[config.weights] + embedding_bytes
    memory_bytes = available_bytes()
    if weight_bytes + kv_bytes > memory_bytes:
        raise DoesNotFit(
            f"{model.name} needs {weight_bytes / 1e9:.2f} GB for weights and {kv_bytes / 1e9:.2f} GB for {blocks} "
            f"KV-cache blocks of {config.block_size} tokens; {memory_bytes / 1e9:.2f} GB are available."
        )
    return blocks


def available_bytes() -> int:
    """Memory that could be taken without swapping; all of it where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _layer_progress(progress: Callable[[str], None] | None) -> Callable[[int, int], None] | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        if done == total or done % 10 == 0:
            progress(f"Loaded {done} of {total} layers")

    return report
