"""The engine under test: its model, caches and graphs, driven without a host and by the engine's own scheduler."""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel

from benchmarks.engine_gpu.device import elapsed_seconds
from local_engine.block_pool import BlockPool
from local_engine.config import ModelConfig, WeightFormat
from local_engine.cuda_graph import DecodeBuffers, DecodeGraphs, DecodeInputs, DecodeRow
from local_engine.engine_core import EngineCore, StepReport
from local_engine.kernels.advance import advance
from local_engine.kernels.device_sampler import DeviceSampler
from local_engine.kernels.gpu_assembly import GpuPlan, build_gpu_runner
from local_engine.kernels.gpu_runner import WAYS, GpuRunner, OneRow, attention_batch
from local_engine.kernels.gpu_steps import GpuSteps
from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.loading.weights import WeightSource
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row, Scheduler
from local_engine.text.tokenizer import Tokenizer

BLOCK_SIZE = 16


class StateDictWeights:
    """transformers' own tensors as the engine's WeightSource, so that both sides multiply the same numbers."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name].detach()


@dataclass(frozen=True, slots=True)
class Engine:
    """One loaded model with caches for `blocks` blocks, filled with random keys and values."""

    shape: ModelConfig
    runner: GpuRunner
    blocks: int

    @property
    def device(self) -> torch.device:
        return self.runner.device


def build(
    shape: ModelConfig,
    weights: WeightSource,
    *,
    kind: WeightFormat,
    blocks: int,
    max_rows: int,
    device: torch.device,
    one_row: tuple[OneRow, ...] = WAYS,
) -> Engine:
    plan = GpuPlan(
        weights=kind,
        kv_dtype=torch.float32 if kind == "float32" else torch.bfloat16,
        blocks=blocks,
        block_size=BLOCK_SIZE,
        context_window=shape.context_window,
        max_rows=max_rows,
        one_row=one_row,
    )
    runner = build_gpu_runner(shape, weights, plan, device)
    for cache in runner.caches:
        cache.keys.normal_()
        cache.values.normal_()
    return Engine(shape, runner, blocks)


class DeviceLoop:
    """Decode steps that sample and advance on the device: the engine without its host, the bound of any overlap."""

    def __init__(self, engine: Engine, *, rows: int, context: int, draws: bool = True) -> None:
        self._engine = engine
        self._model = engine.runner.model
        max_blocks = engine.shape.context_window // BLOCK_SIZE
        self.buffers = DecodeBuffers(rows, max_blocks, BLOCK_SIZE, engine.device)
        self._graphs = DecodeGraphs(self.step, self.buffers)
        self._rows, self._context, self._draws = rows, context, draws
        self._sampling = plain_sampling(rows, engine.device)

    def step(self, inputs: DecodeInputs) -> torch.Tensor:
        batch = attention_batch(inputs)
        hidden = self._model.forward(inputs.token_ids, inputs.positions, self._engine.runner.caches, batch)
        logits = self._model.head(hidden)
        chosen = self._draw(logits, inputs)
        advance(inputs, chosen, BLOCK_SIZE)
        return chosen

    def start(self, steps: int) -> None:
        """Give the sequences blocks for `steps` more tokens, in random order as from a busy pool."""
        per_row = -(-(self._context + steps + 1) // BLOCK_SIZE)
        order = random.Random(7).sample(range(self._engine.blocks), per_row * self._rows)
        blocks = [order[row * per_row : (row + 1) * per_row] for row in range(self._rows)]
        rows = [DecodeRow(token_id=row, length=self._context, block_ids=blocks[row]) for row in range(self._rows)]
        self.buffers.fill(rows, self._rows)

    def tokens_per_second(self, steps: int) -> float:
        """Rate over `steps` captured steps; the context grows by as much, around the requested one."""
        self._context -= steps // 2
        with torch.inference_mode():
            self.start(steps + 4)
            self._run(3)
            seconds = elapsed_seconds(lambda: self._run(steps), self.buffers.device)
        return self._rows * steps / seconds

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._graphs.run(self._rows)

    def _draw(self, logits: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
        if not self._draws:
            return inputs.token_ids
        return sample(logits, replace(self._sampling, position=inputs.seq_lens), cuts=False)


def plain_sampling(rows: int, device: torch.device) -> SamplingTensors:
    """Temperature 1, no filter, and a seed per row."""
    ones, zeros = torch.ones(rows, device=device), torch.zeros(rows, dtype=torch.int32, device=device)
    return SamplingTensors(ones, zeros, ones, ones * 0, torch.arange(rows, device=device), zeros)


@dataclass(slots=True)
class Served:
    """What the engine's loop did, in wall-clock seconds. `decode_steps`, (rows, seconds), computed no prompt tokens."""

    output_tokens: int = 0
    seconds: float = 0.0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_steps: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    answers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def note(self, report: StepReport) -> None:
        """Add one finished step."""
        errors = [delta.error for delta in report.deltas if delta.error is not None]
        if errors:
            raise RuntimeError(errors[0])
        if not report.rows:
            return
        if report.prefill_tokens:
            self.prefill_tokens += report.prefill_tokens
            self.prefill_seconds += report.seconds
        else:
            self.decode_steps.append((report.rows, report.seconds))

    def decode_step_seconds(self, rows: int) -> float:
        """Median duration of a decode step of exactly `rows` rows."""
        return statistics.median(seconds for count, seconds in self.decode_steps if count == rows)


def serve(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    output_tokens: int,
    max_tokens_per_step: int,
    temperature: float = 0.0,
    runs_ahead: bool = True,
) -> Served:
    """Answer all prompts through the engine's own step loop, `output_tokens` each.

    `runs_ahead` False waits for every step before the next is scheduled. Raises RuntimeError when an answer fails.
    """
    core = build_core(engine, max_tokens_per_step=max_tokens_per_step, runs_ahead=runs_ahead)
    params = SamplingParams(temperature=temperature, max_tokens=output_tokens)
    requests = [Request(str(index), list(prompt), params) for index, prompt in enumerate(prompts)]
    for request in requests:
        core.add(request)
    served = Served()
    began = time.perf_counter()
    while core.has_work:
        served.note(core.step())
    served.seconds = time.perf_counter() - began
    served.output_tokens = sum(request.output_tokens for request in requests)
    served.answers = {request.request_id: request.output_token_ids for request in requests}
    return served


def build_core(engine: Engine, *, max_tokens_per_step: int, runs_ahead: bool) -> EngineCore:
    """The engine as it is served, but without text: its tokenizer knows one word."""
    kv_cache = KvCacheManager(BlockPool(engine.blocks), block_size=BLOCK_SIZE, has_prefix_cache=False)
    scheduler = Scheduler(kv_cache, max_running_requests=256, max_tokens_per_step=max_tokens_per_step)
    words = FastTokenizer(WordLevel({"word": 0}, unk_token="word"))
    return EngineCore(
        GpuSteps(engine.runner, DeviceSampler(engine.device), runs_ahead=runs_ahead),
        scheduler,
        Tokenizer(words, chat_template=None, bos_token_id=None, eos_token_ids=[]),
        context_window=engine.shape.context_window,
        clock=time.perf_counter,
    )


def prompt_logits(engine: Engine, prompt: Sequence[int]) -> torch.Tensor:
    """Logits float32 [vocabulary] after one prompt, computed in the first blocks of the cache."""
    return _logits(engine, prompt, 0)


def decode_logits(engine: Engine, prompt: Sequence[int]) -> torch.Tensor:
    """The same logits, by a captured decode step for the last token after the others were computed."""
    _logits(engine, prompt[:-1], 0)
    return _logits(engine, prompt, len(prompt) - 1)


def _logits(engine: Engine, prompt: Sequence[int], start: int) -> torch.Tensor:
    request = Request("prompt", list(prompt), SamplingParams(temperature=0.0))
    request.block_ids = list(range(-(-len(prompt) // BLOCK_SIZE)))
    row = Row(request=request, start=start, count=len(prompt) - start, drafts=0, needs_logits=True)
    return engine.runner.run(Batch((row,)))[0]
