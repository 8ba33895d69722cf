"""Clients that come, go and leave early, for minutes: no block leaks, memory does not grow, every token is right.

`python -m benchmarks.engine_soak --minutes 10 --json`. Runs the engine in this process, with a cache so small that
requests preempt each other; every answer is compared with that of the same prompt alone.
"""

import asyncio
import random
import resource
import sys
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.report import Bar, build_report, options, publish
from local_engine.assembly import Engine, build_engine
from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig, WeightFormat
from local_engine.loading.packages import DEFAULT_MODEL, default_models_directory, fetch_model, print_progress
from local_engine.native.build import load_decoder
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams

CLIENTS = 8
ANSWER_TOKENS = 24
LEAVE_SHARE = 0.35
SALTED_SHARE = 0.5
SAMPLE_SECONDS = 1.0
MOST_GROWTH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Known:
    """A prompt and its greedy answer when it runs alone."""

    prompt: list[int]
    answer: list[int]


@dataclass(slots=True)
class Report:
    """What happened. Memory is this process's resident set."""

    seconds: float = 0.0
    answers: int = 0
    left_early: int = 0
    tokens: int = 0
    wrong_answers: int = 0
    failed_answers: int = 0
    preemptions: int = 0
    cached_prompt_tokens: int = 0
    leaked_blocks: int = 0
    leaked_requests: int = 0
    memory_bytes_early: int = 0
    memory_bytes_late: int = 0

    @property
    def memory_growth_bytes(self) -> int:
        """Late peak minus early peak."""
        return self.memory_bytes_late - self.memory_bytes_early


def config(weights: WeightFormat, kv_blocks: int = 128) -> EngineConfig:
    """128 blocks are 2,048 tokens: four long prompts do not fit at once."""
    return EngineConfig(
        weights=weights,
        context_window=2048,
        kv_blocks=kv_blocks,
        max_running_requests=6,
        max_waiting_requests=CLIENTS,
        max_tokens_per_step=256,
        speculative_tokens=4,
    )


def best_weights() -> WeightFormat:
    """int8 if its answers cannot depend on the batch (with the native decoder), else float32."""
    return "int8" if load_decoder() is not None else "float32"


def make_prompts(engine: Engine, long_tokens: int) -> list[list[int]]:
    """Short and long prompts, some with a common prefix."""
    encode = engine.tokenizer.encode
    story = encode("The harvest report of the year, field by field, river by river, town by town. " * 100)
    starts = [encode(f"Question {i}: what is {i} times {i + 3}?\nAnswer:") for i in range(6)]
    shared = [story[:length] + starts[i] for i, length in enumerate((long_tokens, long_tokens // 2, long_tokens))]
    return starts + shared + [story[7 : 7 + long_tokens]]


def answer_alone(engine: Engine, prompt: list[int]) -> Known:
    """Run one prompt alone."""
    request = Request("alone", prompt, SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS))
    engine.core.add(request)
    while engine.core.has_work:
        engine.core.step()
    return Known(prompt, request.output_token_ids)


async def soak(engine: Engine, known: list[Known], seconds: float) -> Report:
    """Keep all clients busy for that long, let requests finish, then count what is left."""
    report = Report()
    serving = engine.serve()
    serving.start()
    deadline = time.monotonic() + seconds
    watcher = asyncio.create_task(_watch_memory(report, deadline, seconds))
    clients = [_client(serving, known, deadline, random.Random(i), report) for i in range(CLIENTS)]
    await asyncio.gather(*clients)
    await watcher
    # Before it ends, the step loop handles everything in its inbox, cancellations included.
    await serving.stop()
    pool = engine.kv_cache.pool
    report.seconds = seconds
    report.leaked_blocks = pool.total_blocks - pool.free_blocks
    report.leaked_requests = len(engine.core.scheduler.running) + len(engine.core.scheduler.waiting)
    report.preemptions = engine.core.scheduler.preemptions
    return report


async def _client(
    serving: AsyncEngine, known: list[Known], deadline: float, chance: random.Random, report: Report
) -> None:
    while time.monotonic() < deadline:
        one = chance.choice(known)
        leave_after = chance.randrange(ANSWER_TOKENS) if chance.random() < LEAVE_SHARE else None
        # With a salt of its own, a prompt shares no cached blocks and needs room for all of its own.
        salt = str(chance.random()) if chance.random() < SALTED_SHARE else ""
        asking = asyncio.create_task(_ask(serving, one, leave_after, salt, report))
        if leave_after == 0:
            # Some leave while they wait or while their prompt is computed.
            await asyncio.sleep(chance.random() * 0.2)
            asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


async def _ask(serving: AsyncEngine, one: Known, leave_after: int | None, salt: str, report: Report) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS)
    admission = serving.admit(one.prompt)
    tokens: list[int] = []
    is_finished = False
    try:
        async with aclosing(serving.generate(one.prompt, params, cache_salt=salt)) as deltas:
            async for delta in deltas:
                tokens += delta.token_ids
                report.failed_answers += delta.error is not None
                is_finished = delta.finish_reason is not None
                if is_finished:
                    report.cached_prompt_tokens += delta.request.cached_prompt_tokens or 0
                if leave_after is not None and len(tokens) >= leave_after:
                    break
    finally:
        admission.release()
        report.answers += is_finished
        report.left_early += not is_finished
        report.tokens += len(tokens)
        report.wrong_answers += tokens != (one.answer if is_finished else one.answer[: len(tokens)])


async def _watch_memory(report: Report, deadline: float, seconds: float) -> None:
    """Records the peak of the second fifth of the time, when caches are warm, and of the last fifth."""
    while (left := deadline - time.monotonic()) > 0:
        share, now = 1 - left / seconds, resident_bytes()
        if 0.2 <= share < 0.4:
            report.memory_bytes_early = max(report.memory_bytes_early, now)
        elif share >= 0.8:
            report.memory_bytes_late = max(report.memory_bytes_late, now)
        await asyncio.sleep(min(SAMPLE_SECONDS, seconds / 50))


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def bars(report: Report) -> list[Bar]:
    """What must hold."""
    return [
        Bar("answers with a token that differs from the answer alone", report.wrong_answers, 0, "most"),
        Bar("answers that failed", report.failed_answers, 0, "most"),
        Bar("blocks held after the last answer", report.leaked_blocks, 0, "most"),
        Bar("requests left after the last answer", report.leaked_requests, 0, "most"),
        Bar("growth of resident memory, bytes", report.memory_growth_bytes, MOST_GROWTH_BYTES, "most"),
    ]


def run(engine: Engine, seconds: float, *, long_tokens: int, progress: Callable[[str], None]) -> Report:
    """Answer every prompt alone, then under load."""
    known = [answer_alone(engine, prompt) for prompt in make_prompts(engine, long_tokens)]
    progress(f"{len(known)} prompts answered alone; {CLIENTS} clients for {seconds:.0f} s")
    return asyncio.run(soak(engine, known, seconds))


def main() -> int:
    """Soak and print."""
    parser = options(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--weights", choices=("float32", "int8"), default=best_weights())
    parser.add_argument("--models-dir", type=Path, default=None)
    chosen = parser.parse_args()
    path = fetch_model(DEFAULT_MODEL, chosen.models_dir or default_models_directory())
    engine = build_engine(path, config(chosen.weights), progress=print_progress)
    report = run(engine, chosen.minutes * 60, long_tokens=900, progress=print_progress)
    results = asdict(report) | {"weights": chosen.weights, "clients": CLIENTS, "threads": torch.get_num_threads()}
    judged = bars(report)
    publish(build_report("engine_soak", results, judged), chosen)
    return 0 if all(bar.holds for bar in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
