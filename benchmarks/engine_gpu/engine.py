"""The engine under test: its model, caches and graphs, driven by the device alone and by the engine's own scheduler."""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from local_engine.block_pool import BlockPool
from local_engine.config import ModelConfig, WeightFormat
from local_engine.cuda_graph import DecodeBuffers, DecodeGraphs, DecodeInputs, DecodeRow
from local_engine.kernels.advance import advance
from local_engine.kernels.batch_draw import BatchDraw
from local_engine.kernels.gpu_assembly import GpuPlan, build_gpu_runner
from local_engine.kernels.gpu_runner import GpuRunner, attention_batch
from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.request import Request
from local_engine.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row, Scheduler
from local_engine.weights import WeightSource

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
    draws: BatchDraw
    blocks: int

    @property
    def device(self) -> torch.device:
        return self.runner.device


def build(
    shape: ModelConfig, weights: WeightSource, *, kind: WeightFormat, blocks: int, max_rows: int, device: torch.device
) -> Engine:
    plan = GpuPlan(
        weights=kind,
        kv_dtype=torch.float32 if kind == "float32" else torch.bfloat16,
        blocks=blocks,
        block_size=BLOCK_SIZE,
        context_window=shape.context_window,
        max_rows=max_rows,
    )
    runner = build_gpu_runner(shape, weights, plan, device)
    for cache in runner.caches:
        cache.keys.normal_()
        cache.values.normal_()
    return Engine(shape, runner, BatchDraw(device), blocks)


class DeviceLoop:
    """Decode steps that draw and move on by themselves: the engine without its host, the bound of any overlap."""

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
        chosen = sample(logits, self._settings(inputs.seq_lens)) if self._draws else inputs.token_ids
        advance(inputs, chosen, BLOCK_SIZE)
        return chosen

    def start(self, steps: int) -> None:
        """Lay out the sequences with blocks for `steps` more tokens, in random order as a busy pool hands them out."""
        per_row = -(-(self._context + steps + 1) // BLOCK_SIZE)
        order = random.Random(7).sample(range(self._engine.blocks), per_row * self._rows)
        blocks = [order[row * per_row : (row + 1) * per_row] for row in range(self._rows)]
        rows = [DecodeRow(token_id=row, length=self._context, block_ids=blocks[row]) for row in range(self._rows)]
        self.buffers.fill(rows, self._rows)

    def tokens_per_second(self, steps: int) -> float:
        """Rate over `steps` captured steps; the context grows by as much, and is centred on what was asked for."""
        self._context -= steps // 2
        with torch.inference_mode():
            self.start(steps + 4)
            for _ in range(3):
                self._graphs.run(self._rows)
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            for _ in range(steps):
                self._graphs.run(self._rows)
            ended.record()
            ended.synchronize()
        return self._rows * steps / (began.elapsed_time(ended) / 1000)

    def _settings(self, seq_lens: torch.Tensor) -> SamplingTensors:
        rows, how = len(seq_lens), self._sampling
        return SamplingTensors(
            how.temperature[:rows], how.top_k[:rows], how.top_p[:rows], how.min_p[:rows], how.seed[:rows], seq_lens
        )


def plain_sampling(rows: int, device: torch.device) -> SamplingTensors:
    """Temperature 1 and no filter, every row its own seed."""
    ones, zeros = torch.ones(rows, device=device), torch.zeros(rows, dtype=torch.int32, device=device)
    return SamplingTensors(ones, zeros, ones, ones * 0, torch.arange(rows, device=device), zeros)


@dataclass(slots=True)
class Served:
    """What the engine's loop did, in wall-clock seconds; `decode_steps` (rows, seconds) computed no prompt tokens."""

    output_tokens: int = 0
    seconds: float = 0.0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_steps: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    answers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

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
) -> Served:
    """Answer all prompts through the engine's scheduler, runner and batch draw, `output_tokens` each."""
    kv_cache = KvCacheManager(BlockPool(engine.blocks), block_size=BLOCK_SIZE, has_prefix_cache=False)
    scheduler = Scheduler(kv_cache, max_running_requests=256, max_tokens_per_step=max_tokens_per_step)
    params = SamplingParams(temperature=temperature, max_tokens=output_tokens)
    requests = [Request(str(index), list(prompt), params) for index, prompt in enumerate(prompts)]
    for request in requests:
        scheduler.add(request)
    served = Served()
    began = time.perf_counter()
    while scheduler.running or scheduler.waiting:
        _step(engine, scheduler, served, output_tokens)
    served.seconds = time.perf_counter() - began
    served.output_tokens = sum(request.output_tokens for request in requests)
    served.answers = {request.request_id: request.output_token_ids for request in requests}
    return served


def _step(engine: Engine, scheduler: Scheduler, served: Served, output_tokens: int) -> None:
    began = time.perf_counter()
    batch = scheduler.schedule()
    if not batch.rows:
        raise RuntimeError("the KV cache is too small for these prompts")
    logits = engine.runner.run(batch)
    drawing = [row for row in batch.rows if row.needs_logits]
    drawn = iter(engine.draws.draw(logits, [(row.request, 0) for row in drawing]).tolist() if drawing else [])
    scheduler.begin(batch)
    for row in batch.rows:
        scheduler.complete(row, [next(drawn)] if row.needs_logits else [])
        if row.request.output_tokens >= output_tokens:
            scheduler.remove(row.request)
    seconds = time.perf_counter() - began
    if all(row.count == 1 for row in batch.rows):
        served.decode_steps.append((len(batch.rows), seconds))
    else:
        served.prefill_tokens += batch.tokens
        served.prefill_seconds += seconds


def prompt_logits(engine: Engine, prompt: Sequence[int]) -> torch.Tensor:
    """Logits float32 [vocabulary] after one prompt, computed in the first blocks of the cache."""
    request = Request("prompt", list(prompt), SamplingParams(temperature=0.0))
    request.block_ids = list(range(-(-len(prompt) // BLOCK_SIZE)))
    row = Row(request=request, start=0, count=len(prompt), drafts=0, needs_logits=True)
    return engine.runner.run(Batch((row,)))[0]
