"""A model simple enough to reason about: the next token depends on all previous ones, through the paged cache."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace

import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel

from local_engine.block_pool import BlockPool
from local_engine.engine_core import EngineCore
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.request import Request
from local_engine.sampling.prompt_scores import score_prompts
from local_engine.sampling.sampler import Drawn, Sampler
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row, Scheduler
from local_engine.steps import DirectSteps, Steps
from local_engine.text.tokenizer import Tokenizer

VOCABULARY = 97


class SlotRunner:
    """Writes every token into its slot, and draws from what the block table then refers to.

    A wrong block table, a block given to two requests, a wrong position or a stale prefix changes the next token.
    """

    device = torch.device("cpu")

    def __init__(self, blocks: int, block_size: int) -> None:
        self._slots = [-1] * (blocks * block_size)
        self._block_size = block_size

    def run(self, batch: Batch) -> torch.Tensor:
        for row in batch.rows:
            tokens = (row.request.token_ids + row.request.draft_token_ids)[row.start : row.start + row.count]
            for position, token in enumerate(tokens, row.start):
                self._slots[self._slot(row.request, position)] = token
        if any(row.request.params.prompt_logprobs is not None for row in batch.rows):
            score_prompts(batch.rows, torch.stack(self._everywhere(batch)), lambda logits: logits)
        logits: list[torch.Tensor] = []
        for row in batch.rows:
            if row.needs_logits:
                end = row.start + row.count
                logits += [self._logits(row.request, upto) for upto in range(end - row.drafts, end + 1)]
        return torch.stack(logits) if logits else torch.empty(0, VOCABULARY)

    def _everywhere(self, batch: Batch) -> list[torch.Tensor]:
        """The logits of every position in the batch."""
        return [
            self._logits(row.request, at + 1) for row in batch.rows for at in range(row.start, row.start + row.count)
        ]

    def _slot(self, request: Request, position: int) -> int:
        block = request.block_ids[position // self._block_size]
        return block * self._block_size + position % self._block_size

    def _logits(self, request: Request, upto: int) -> torch.Tensor:
        seen = [self._slots[self._slot(request, position)] for position in range(upto)]
        logits = torch.zeros(VOCABULARY)
        logits[next_token(seen)] = 10.0
        return logits


def direct(runner: SlotRunner) -> DirectSteps:
    """The scripted model on a device that the host waits for."""
    return DirectSteps(runner, Sampler(runner.device))


class AheadSteps:
    """The scripted model on a device that runs ahead: a thread that executes batches in order.

    It sees a batch as it was when it was begun, and takes tokens in flight from its own draws. `told` lists the host's
    calls, in order: ("begin" or "wait", number of the step).
    """

    runs_ahead = True

    def __init__(self, runner: SlotRunner) -> None:
        self._steps = direct(runner)
        self._device = ThreadPoolExecutor(max_workers=1)
        self._drawn: dict[str, int] = {}
        self.told: list[tuple[str, int]] = []

    def begin(self, batch: Batch) -> "AheadStep":
        seen = Batch(tuple(replace(row, request=_as_it_is(row.request)) for row in batch.rows))
        number = sum(what == "begin" for what, _ in self.told)
        self.told.append(("begin", number))
        done = self._device.submit(self._compute, seen)
        return AheadStep(done, lambda: self.told.append(("wait", number)))

    def check(self) -> None:
        self._steps.check()

    def forget(self, request_id: str) -> None:
        self._device.submit(self._steps.forget, request_id)

    def close(self) -> None:
        """End the thread."""
        self._device.shutdown()

    def _compute(self, batch: Batch) -> list[Drawn]:
        for row in batch.rows:
            self._fill_in(row)
        drawn = self._steps.begin(batch).wait()
        self._drawn = {
            row.request.request_id: new.token_ids[-1]
            for row, new in zip(batch.rows, drawn, strict=True)
            if new.token_ids
        }
        return drawn

    def _fill_in(self, row: Row) -> None:
        if row.request.in_flight_tokens:
            row.request.token_ids.append(self._drawn[row.request.request_id])
            row.request.in_flight_tokens = 0


@dataclass(frozen=True, slots=True)
class AheadStep:
    """A batch that the thread executes, or will execute."""

    done: Future[list[Drawn]]
    tell: Callable[[], None] = field(repr=False)

    def wait(self) -> list[Drawn]:
        self.tell()
        return self.done.result()


def _as_it_is(request: Request) -> Request:
    """A copy that the host's later changes do not affect."""
    seen = copy(request)
    seen.token_ids, seen.block_ids = list(request.token_ids), list(request.block_ids)
    seen.draft_token_ids = list(request.draft_token_ids)
    return seen


def next_token(tokens: list[int]) -> int:
    """A rolling hash of the whole history, with an occasional short cycle so that drafts can match."""
    if len(tokens) % 7 < 4 and len(tokens) > 3:
        return tokens[-3]
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def expected_answer(prompt: list[int], count: int) -> list[int]:
    """The answer that an engine of any configuration must give."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def make_request(name: str, prompt: list[int], **changes: object) -> Request:
    """A greedy request; keyword arguments go to its sampling parameters."""
    params: dict[str, object] = {"temperature": 0.0, "max_tokens": 8} | changes
    return Request(name, prompt, SamplingParams(**params))  # pyright: ignore[reportArgumentType]


def make_core(
    *,
    blocks: int = 64,
    block_size: int = 4,
    running: int = 4,
    budget: int = 16,
    has_prefix_cache: bool = True,
    alignment: int | None = None,
    speculative_tokens: int = 0,
    runner: SlotRunner | None = None,
    steps: Steps | None = None,
) -> tuple[EngineCore, KvCacheManager]:
    """An engine over the scripted model."""
    fast = FastTokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    tokenizer = Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[])
    kv_cache = KvCacheManager(BlockPool(blocks), block_size=block_size, has_prefix_cache=has_prefix_cache)
    scheduler = Scheduler(kv_cache, max_running_requests=running, max_tokens_per_step=budget, chunk_alignment=alignment)
    core = EngineCore(
        steps or direct(runner or SlotRunner(blocks, block_size)),
        scheduler,
        tokenizer,
        context_window=1000,
        speculative_tokens=speculative_tokens,
    )
    return core, kv_cache


def run_all(core: EngineCore, requests: list[Request], *, stagger: int = 1) -> None:
    """Add the requests a few steps apart and run until nothing is left."""
    waiting = list(requests)
    for step in range(10_000):
        if waiting and step % stagger == 0:
            core.add(waiting.pop(0))
        if not waiting and not core.has_work:
            return
        core.step()
    raise AssertionError("the engine does not come to an end")
