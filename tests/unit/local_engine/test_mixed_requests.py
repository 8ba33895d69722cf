"""Requests of every kind at once, with small steps, drafts and preemption: each gets the same answer as alone."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.block_pool import BlockPool
from local_engine.engine_core import EngineCore
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.request import Request
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.sampling.sampler import Sampler
from local_engine.sampling.sampling_params import Constraint
from local_engine.scheduler import Scheduler
from local_engine.steps import DirectSteps
from local_engine.text.tokenizer import Tokenizer, byte_alphabet
from tests.unit.local_engine.scripted import VOCABULARY, SlotRunner, make_request

END = VOCABULARY - 1
LENGTH = 24
HOT: dict[str, object] = {"temperature": 2.0}
KINDS: tuple[dict[str, object], ...] = (
    {},
    HOT | {"seed": 5},
    HOT | {"seed": 6, "top_k": 20, "top_p": 0.9, "logprobs": 2},
    {"temperature": 1.2, "seed": 8, "repetition_penalty": 1.1, "frequency_penalty": 2.0},
    {"banned": ((40,), (50, 51), (7, 8, 9)), "logprobs": 0},
    {"allowed_token_ids": frozenset(range(30, 60)), "stop": ("A", "CD")},
    {"stop_token_ids": frozenset({END, 33, 44, 55}), "min_tokens": 4, "includes_stop": True},
    {"constraint": Constraint("regex", "[a-f]{3,9}(xy)*"), "stop_token_ids": frozenset({END})},
    {"prompt_logprobs": 2, "temperature": 1.0, "seed": 9},
    {"prompt_logprobs": 1, "max_tokens": 0},
    HOT | {"seed": 7, "constraint": Constraint("json_schema", '{"enum": ["on", 12]}')},
)
Said = tuple[list[int], str, str | None, list[TokenLogprobs], list[TokenLogprobs]]


@cache
def tokenizer() -> Tokenizer:
    """A vocabulary of the printable ASCII characters and an end token."""
    names = {value: name for name, value in byte_alphabet().items()}
    fast = FastTokenizer(BPE(vocab={names[32 + i]: i for i in range(END)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("</s>", special=True)])
    return Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[END])


def run(
    prompts: list[tuple[int, list[int]]], *, blocks: int, block_size: int, running: int, budget: int, drafts: int
) -> tuple[list[Said], int]:
    """(every request's answer, number of preemptions)."""
    compiler = ConstraintCompiler(tokenizer(), VOCABULARY)
    runner = SlotRunner(blocks, block_size)
    cache = KvCacheManager(BlockPool(blocks), block_size=block_size)
    scheduler = Scheduler(cache, max_running_requests=running, max_tokens_per_step=budget)
    steps = DirectSteps(runner, Sampler(runner.device, compiler))
    core = EngineCore(steps, scheduler, tokenizer(), context_window=1000, speculative_tokens=drafts)
    requests: list[Request] = []
    for number, (kind, prompt) in enumerate(prompts):
        requests.append(make_request(str(number), list(prompt), **{"max_tokens": LENGTH, **KINDS[kind]}))
        core.add(requests[-1])
    texts = {request.request_id: "" for request in requests}
    logprobs: dict[str, list[TokenLogprobs]] = {request.request_id: [] for request in requests}
    while core.has_work:
        for delta in core.step().deltas:
            assert delta.error is None, delta.error
            texts[delta.request.request_id] += delta.text
            logprobs[delta.request.request_id] += delta.logprobs
    assert cache.pool.free_blocks == blocks
    said = [
        (r.output_token_ids, texts[r.request_id], r.finish_reason, logprobs[r.request_id], r.prompt_logprobs)
        for r in requests
    ]
    return said, scheduler.preemptions


prompts = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.lists(st.integers(0, 9), min_size=1, max_size=12)),
    min_size=1,
    max_size=7,
)


@given(
    raw=prompts,
    block_size=st.sampled_from([1, 3, 8]),
    running=st.integers(1, 5),
    budget=st.integers(1, 24),
    spare=st.integers(0, 12),
    drafts=st.sampled_from([0, 3, 3]),
)
def test_a_mix_changes_nobodys_answer(
    raw: list[tuple[int, list[int]]], block_size: int, running: int, budget: int, spare: int, drafts: int
) -> None:
    alone = [run([one], blocks=40, block_size=16, running=1, budget=64, drafts=0)[0][0] for one in raw]
    longest = max(len(prompt) for _, prompt in raw) + LENGTH
    blocks = -(-longest // block_size) + spare
    mixed, _ = run(raw, blocks=blocks, block_size=block_size, running=running, budget=budget, drafts=drafts)
    assert mixed == alone


def test_the_mixes_hold_preemption_and_every_end() -> None:
    raw = [(kind, [kind, 3, 1, 4]) for kind in range(len(KINDS))]
    said, preemptions = run(raw, blocks=12, block_size=3, running=5, budget=9, drafts=3)
    assert preemptions > 0
    assert {reason for _, _, reason, *_ in said} == {"stop", "length"}
    assert said[-1][1] in ('"on"', "12")
