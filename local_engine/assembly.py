"""Builds an engine from a model file and a configuration. The only place that names concrete classes."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from local_engine import container
from local_engine.async_engine import AsyncEngine
from local_engine.attention.cpu import CpuAttention
from local_engine.block_pool import BlockPool
from local_engine.choices import Machine, Wishes, decide, sentence
from local_engine.config import CPU_WEIGHTS, GPU_WEIGHTS, EngineConfig, ModelConfig
from local_engine.engine_core import EngineCore
from local_engine.errors import ModelUnsupported
from local_engine.gpu_faults import preparing
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.layers.linear import DenseLinear
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.loading.weight_shapes import checked
from local_engine.loading.weights import LoadedFile
from local_engine.memory_plan import plan_blocks
from local_engine.metrics import EngineMetrics
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.native.native_decoder import NativeDecoder, can_run, why_not
from local_engine.native.native_runner import NativeRunner
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampler import Sampler
from local_engine.scheduler import Scheduler
from local_engine.steps import DirectSteps, Runner, Steps
from local_engine.text.tokenizer import Tokenizer
from local_engine.transfer import on_device
from local_engine.warm_up import warm_up
from native import huge_pages

DETERMINISTIC_CHUNK = 128
FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True)
class Compute:
    """The runner and the steps that draw from it: one pair per kind of device."""

    runner: Runner
    steps: Steps


@dataclass(frozen=True, slots=True)
class Engine:
    """A core, and the parts that others need access to."""

    core: EngineCore
    runner: Runner
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


def build_engine(
    path: Path,
    config: EngineConfig,
    *,
    wishes: Wishes | None = None,
    progress: Callable[[str], None] | None = None,
) -> Engine:
    """Load a model and build its engine, ready for its first request.

    With `wishes`, open choices are made for the model and the device. Raises ModelUnavailable, ModelUnsupported or
    DoesNotFit.
    """
    allowed = container.cores(container.own_group()) or torch.get_num_threads()
    torch.set_num_threads(config.threads or min(torch.get_num_threads(), allowed))
    loaded = without_idle_window(load_model(path), config)
    if wishes is not None:
        config = decide(config, wishes, loaded.config, loaded.stored, machine_of(config, loaded.config))
    if progress is not None:
        progress(f"Running {sentence(config)}")
        if config.device == "cpu" and (obstacle := why_not(loaded.config, config.block_size)):
            progress(f"The native decoder is left out, which costs speed: {obstacle}")
        shape = loaded.config
        if config.context_window is None and shape.default_context_window < shape.context_window:
            progress(
                f"{shape.name} is served up to {shape.default_context_window} tokens. With --context-window it "
                f"is up to {shape.context_window}, and all its answers are those of its long positions"
            )
    engine = assemble(loaded, config, progress=progress)
    engine.constraints.prepare()
    if config.device == "cpu":
        huge_pages.gather()
    else:
        warm_up(engine.core, max(1, min(config.max_tokens_per_step, engine.context_window - 2)))
    return engine


def machine_of(config: EngineConfig, model: ModelConfig) -> Machine:
    """What the choices depend on; raises ModelUnsupported for a device that does not exist or suffice."""
    if config.device == "cpu":
        return Machine(False, available_bytes(), has_native_decoder=can_run(model, config.block_size))
    check_device(replace(config, weights="bfloat16", kv_format="bfloat16"))
    capability = torch.cuda.get_device_capability(torch.device(config.device))
    return Machine(True, available_bytes(config.device), has_fp8=capability >= FP8_CAPABILITY)


def without_idle_window(loaded: LoadedFile, config: EngineConfig) -> LoadedFile:
    """Drops a sliding window that no context can exceed."""
    shape = loaded.config
    if not shape.sliding_window or shape.sliding_window < (config.context_window or shape.default_context_window):
        return loaded
    return replace(loaded, config=replace(shape, sliding_window=0))


def load_model(path: Path) -> LoadedFile:
    """Open a GGUF file or a folder of safetensors."""
    if path.is_dir():
        return checked(load_safetensors(path))
    # Imported here: a folder does not need the library that reads GGUF.
    from local_engine.loading.gguf_loader import load_gguf

    return checked(load_gguf(path))


def assemble(
    loaded: LoadedFile,
    config: EngineConfig,
    *,
    compute: Compute | None = None,
    progress: Callable[[str], None] | None = None,
) -> Engine:
    """Builds an engine around weights that are already open, or around a `compute` that holds them."""
    context_window = min(config.context_window or loaded.config.default_context_window, loaded.config.context_window)
    check_device(config)
    is_native = config.device == "cpu" and can_run(loaded.config, config.block_size)
    blocks = plan_blocks(
        loaded.config,
        config,
        context_window,
        available_bytes(config.device),
        exact_bytes_per_weight=loaded.bytes_per_weight if is_native else 4.0,
    )
    # A longer request would fail where the cache ends.
    if (held := blocks * config.block_size) < context_window:
        context_window = held
        if progress is not None:
            progress(f"{loaded.config.name} is served up to {held} tokens, as its KV cache holds no more")
    # A cached prefix or a draft would change how a request is divided into steps.
    is_deterministic = config.is_deterministic
    kv_cache = KvCacheManager(
        BlockPool(blocks),
        block_size=config.block_size,
        has_prefix_cache=config.has_prefix_cache and not is_deterministic,
    )
    scheduler = Scheduler(
        kv_cache,
        max_running_requests=config.max_running_requests,
        max_tokens_per_step=max(config.max_tokens_per_step, DETERMINISTIC_CHUNK if is_deterministic else 1),
        chunk_alignment=DETERMINISTIC_CHUNK if is_deterministic else None,
    )
    constraints = ConstraintCompiler(loaded.tokenizer, loaded.config.vocabulary_size)
    compute = compute or build_compute(loaded, config, blocks, context_window, constraints, progress)
    core = EngineCore(
        compute.steps,
        scheduler,
        loaded.tokenizer,
        context_window=context_window,
        speculative_tokens=0 if is_deterministic else config.speculative_tokens,
    )
    return Engine(core, compute.runner, kv_cache, loaded.tokenizer, constraints, loaded.config, config, context_window)


def check_device(config: EngineConfig) -> None:
    """Raises ModelUnsupported for a weight format without kernels on the device, and for a missing device."""
    is_gpu = config.device != "cpu"
    if is_gpu and not re.fullmatch(r"cuda(:\d+)?", config.device):
        raise ModelUnsupported(f"--device is cpu, cuda or cuda:N, not {config.device}.")
    formats = GPU_WEIGHTS if is_gpu else CPU_WEIGHTS
    if config.weights not in formats:
        raise ModelUnsupported(
            f"{config.weights} weights do not run on {config.device}; choose one of {', '.join(formats)}."
        )
    if not is_gpu and config.kv_format != "float32":
        raise ModelUnsupported(f"A {config.kv_format} KV cache needs a GPU; leave --kv-format out on a CPU.")
    if is_gpu and (torch.device(config.device).index or 0) >= torch.cuda.device_count():
        raise ModelUnsupported(
            f"No CUDA device answers for {config.device}: run on a machine with one and a CUDA build of torch, "
            "or leave --device out."
        )
    if is_gpu:
        check_capability(torch.cuda.get_device_capability(torch.device(config.device)), config)


def check_capability(capability: tuple[int, int], config: EngineConfig) -> None:
    """Raises ModelUnsupported if a GPU is too old for the kernels or for a requested format."""
    formats = {"--weights": config.weights, "--kv-format": config.kv_format}
    asked = [option for option, value in formats.items() if value == "fp8"]
    if capability < (8, 0):
        what, needed, instead = "This engine", "8.0", "leave --device out to run on the CPU"
    elif asked and capability < FP8_CAPABILITY:
        what, needed, instead = f"{asked[0]} fp8", "8.9", "choose bfloat16"
    else:
        return
    found = ".".join(map(str, capability))
    raise ModelUnsupported(
        f"{what} needs a GPU of compute capability {needed} or later and {config.device} has {found}; {instead}."
    )


def build_compute(
    loaded: LoadedFile,
    config: EngineConfig,
    blocks: int,
    context_window: int,
    constraints: ConstraintCompiler,
    progress: Callable[[str], None] | None,
) -> Compute:
    """Loads the weights onto the configured device."""
    if config.device == "cpu":
        runner = build_cpu_runner(loaded, config, blocks, context_window, _layer_progress(progress))
        return Compute(runner, DirectSteps(runner, Sampler(runner.device, constraints)))
    # Imported here: these modules need triton, which only CUDA builds of torch include.
    from triton.errors import TritonError

    from local_engine.kernels.device_sampler import DeviceSampler
    from local_engine.kernels.gpu_assembly import build_gpu_runner, gpu_plan
    from local_engine.kernels.gpu_steps import GpuSteps

    plan, device = gpu_plan(config, blocks, context_window), torch.device(config.device)
    with preparing(device, TritonError), on_device(device):
        runner = build_gpu_runner(
            loaded.config, loaded.weights, plan, device, _layer_progress(progress), nibbles=loaded.nibbles
        )
        if progress is not None:
            progress("Capturing the decode steps")
        runner.capture([1] if config.is_deterministic else None)
    steps = GpuSteps(runner, DeviceSampler(device, constraints), runs_ahead=not config.is_deterministic)
    return Compute(runner, steps)


def build_cpu_runner(
    loaded: LoadedFile,
    config: EngineConfig,
    blocks: int,
    context_window: int,
    progress: Callable[[int, int], None] | None = None,
) -> Runner:
    """The native decoder if machine and model support it, else our own layers on torch's float32 products."""
    obstacle = why_not(loaded.config, config.block_size)
    if obstacle is None and config.weights in ("float32", "int8"):
        decoder = NativeDecoder(loaded, config.weights, context_window=context_window, progress=progress)
        return NativeRunner(decoder, blocks=blocks)
    if config.weights == "int8":
        raise ModelUnsupported(f"int8 weights need the native decoder, and {obstacle}; use float32.")
    model = DecoderModel(
        loaded.config,
        loaded.weights,
        build_linear=DenseLinear,
        attention=CpuAttention(window=loaded.config.sliding_window, scale=loaded.config.attention_scale),
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


def available_bytes(device: str = "cpu") -> int:
    """Free memory of the device: on a CPU what is available without swapping, or the total if the system does not
    say, and at most what this container may still take."""
    if device != "cpu":
        return torch.cuda.mem_get_info(torch.device(device))[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    left = container.memory_left(container.own_group())
    return found if left is None else min(found, left)


def _layer_progress(progress: Callable[[str], None] | None) -> Callable[[int, int], None] | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        if done == total or done % 10 == 0:
            progress(f"Loaded {done} of {total} layers")

    return report
