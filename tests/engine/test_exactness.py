"""Compared with transformers in float32 with the same weights: greedy ids, logits, and equal ids in every
configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import pytest
import torch

from local_engine.assembly import Engine
from local_engine.loading.weights import LoadedFile
from local_engine.request import Request
from local_engine.sampling.logprobs import TokenLogprobs
from tests.engine.conftest import EngineBuilder, Reference, greedy, run
from tests.engine.prompts import CHATS, ODD, long_text

pytestmark = pytest.mark.engine
# If the two most likely tokens are closer than this, float32 sums in another order may choose the other one.
TIE = 2e-4
TOKENS = 17
"""Every answer of that length begins a block of 16 tokens."""


def chat_ids(engine: Engine, text: str) -> list[int]:
    return engine.tokenizer.encode_chat([{"role": "user", "content": text}])


def hundred_prompts(engine: Engine) -> list[list[int]]:
    return [chat_ids(engine, text) for text in CHATS] + [engine.tokenizer.encode(text) for text in ODD]


@torch.inference_mode()
def reference_logits(reference: Reference, requests: Sequence[Request]) -> list[torch.Tensor]:
    """transformers' logits at every position from which our engine drew a token.

    Shorter requests are padded at the end, which no earlier position can see. The common prefix is computed once: of a
    chat's 55 tokens, 24 are the template's.
    """
    longest = max(len(request.token_ids) for request in requests)
    ids = torch.zeros(len(requests), longest, dtype=torch.int64)
    for row, request in enumerate(requests):
        ids[row, : len(request.token_ids)] = torch.tensor(request.token_ids)
    prompts = zip(*(request.prompt_token_ids[:-1] for request in requests), strict=False)
    common = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, prompts))
    cache = reference.model(ids[:1, :common], use_cache=True).past_key_values if common else None
    if cache is not None:
        cache.batch_repeat_interleave(len(requests))
    hidden = reference.model(ids[:, common:-1], past_key_values=cache).last_hidden_state
    firsts = [request.prompt_tokens - 1 - common for request in requests]
    return [
        reference.lm_head(hidden[row, first : first + request.output_tokens])
        for row, (first, request) in enumerate(zip(firsts, requests, strict=True))
    ]


def test_greedy_ids_of_a_hundred_prompts_are_those_of_transformers(build: EngineBuilder, reference: Reference) -> None:
    """Compared position by position given our own ids: if each is the reference's choice, so is the whole answer."""
    engine = build(max_running_requests=25)
    requests = [greedy(ids, name=str(i), tokens=12) for i, ids in enumerate(hundred_prompts(engine))]
    assert len(requests) == 100
    run(engine, requests)
    by_length = sorted(requests, key=lambda request: len(request.token_ids))
    splits: list[str] = []
    for start in range(0, 100, 10):
        batch = by_length[start : start + 10]
        for request, logits in zip(batch, reference_logits(reference, batch), strict=True):
            splits += _splits(request, logits)
    assert not splits, "\n".join(splits)


def _splits(request: Request, logits: torch.Tensor) -> list[str]:
    """Positions at which the reference would have chosen another token, except for near-ties."""
    top, chosen = logits.topk(2), torch.tensor(request.output_token_ids)
    assert len(chosen) == 12
    margins = top.values[:, 0] - top.values[:, 1]
    wrong = (top.indices[:, 0] != chosen) & (margins > TIE)
    return [f"prompt {request.request_id}, token {int(i)}, margin {margins[i]:.2e}" for i in wrong.nonzero().flatten()]


@pytest.fixture(scope="module")
def generated(loaded: LoadedFile, reference: Reference) -> list[tuple[list[int], list[int]]]:
    """A few prompts, and transformers' own answers."""
    texts = (CHATS[0], CHATS[41], ODD[2])
    prompts = [loaded.tokenizer.encode_chat([{"role": "user", "content": text}]) for text in texts]
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return [(ids, reference.generate(torch.tensor([ids]), **options)[0, len(ids) :].tolist()) for ids in prompts]


@pytest.mark.parametrize("block_size", [16, 8], ids=["native where it can be", "torch"])
def test_generation_is_that_of_transformers_itself(
    build: EngineBuilder, generated: list[tuple[list[int], list[int]]], block_size: int
) -> None:
    engine = build(block_size=block_size)
    for ids, theirs in generated:
        assert run(engine, [greedy(ids, tokens=12)])[0] == theirs


@dataclass(frozen=True)
class Scored:
    """A prompt of several chunks with an answer, as scored by our engine, and transformers' log-probabilities after
    each of its tokens."""

    request: Request
    drawn: list[TokenLogprobs]
    theirs: torch.Tensor


@pytest.fixture(scope="module")
def scored(build: EngineBuilder, reference: Reference) -> Scored:
    engine = build()
    ids = engine.tokenizer.encode(long_text(450))[:600]
    assert len(ids) > 512
    request = greedy(ids, tokens=8, logprobs=20, prompt_logprobs=1)
    engine.core.add(request)
    drawn: list[TokenLogprobs] = []
    while engine.core.has_work:
        for delta in engine.core.step().deltas:
            drawn += delta.logprobs
    with torch.inference_mode():
        return Scored(request, drawn, reference(torch.tensor([request.token_ids])).logits[0, :-1].log_softmax(dim=-1))


def test_logits_are_within_a_thousandth(scored: Scored) -> None:
    """Measured by our log-probabilities: every alternative's difference from the best one."""
    theirs = scored.theirs[-8:]
    assert len(scored.drawn) == 8
    for position, entry in enumerate(scored.drawn):
        for token, value in entry.top:
            assert value == pytest.approx(float(theirs[position, token]), abs=1e-3)


def test_a_prompts_own_logprobs_are_those_of_one_forward_pass(scored: Scored) -> None:
    """Over two chunks, in float32: evaluation harnesses add them up."""
    request, ids, theirs = scored.request, scored.request.prompt_token_ids, scored.theirs[:-8]
    ours = torch.tensor([entry.logprob for entry in request.prompt_logprobs])
    chosen = theirs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert float((ours - chosen).abs().max()) < 1e-3
    assert abs(float(ours.sum() - chosen.sum())) < 1e-2
    best = torch.tensor([entry.top[0][0] for entry in request.prompt_logprobs])
    margins = theirs.topk(2).values.diff(dim=-1)[:, 0].abs()
    assert not ((best != theirs.argmax(dim=-1)) & (margins > TIE)).any()


@pytest.fixture(scope="module")
def alone(build: EngineBuilder) -> tuple[list[list[int]], list[list[int]]]:
    """A few prompts, the first one twice, and their answers when run one after the other."""
    plain = build(max_running_requests=1)
    prompts = [chat_ids(plain, text) for text in islice(CHATS, 0, 80, 16)]
    prompts += [prompts[0], plain.tokenizer.encode("A B C D " * 12 + "A B")]
    return prompts, run_freely(plain, prompts)


def run_freely(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    """The answers; afterwards every block is free."""
    answers = run(engine, [greedy(ids, name=str(i), tokens=TOKENS) for i, ids in enumerate(prompts)], stagger=2)
    assert engine.kv_cache.pool.free_blocks == engine.kv_cache.pool.total_blocks
    return answers


@pytest.mark.parametrize(
    "changes",
    [
        {"has_prefix_cache": False},
        {"max_tokens_per_step": 7},
        {"max_tokens_per_step": 64, "block_size": 32},
        {"kv_blocks": 14},
        {"speculative_tokens": 8},
    ],
    ids=str,
)
def test_every_configuration_gives_the_same_greedy_ids(
    build: EngineBuilder, alone: tuple[list[list[int]], list[list[int]]], changes: dict[str, object]
) -> None:
    prompts, expected = alone
    engine = build(**changes)
    assert run_freely(engine, prompts) == expected
    if changes.get("kv_blocks"):
        assert engine.core.scheduler.preemptions > 0
    if changes.get("speculative_tokens"):
        assert engine.core.accepted_tokens > 0


def test_a_cached_prefix_is_reported_and_changes_nothing(build: EngineBuilder) -> None:
    engine = build(kv_blocks=600)
    ids = engine.tokenizer.encode(long_text(200))
    first, second = greedy(ids, tokens=8), greedy(ids, tokens=8, name="again")
    assert run(engine, [first]) == run(engine, [second])
    assert first.cached_prompt_tokens == 0
    assert second.cached_prompt_tokens == (len(ids) - 1) // 16 * 16


def test_the_model_knows_the_capital_of_france(build: EngineBuilder, loaded: LoadedFile) -> None:
    engine = build()
    ids = chat_ids(engine, "What is the capital of France?")
    answer = run(engine, [greedy(ids, tokens=40, stop_token_ids=loaded.tokenizer.eos_token_ids)])[0]
    assert engine.tokenizer.decode(answer) == "The capital of France is Paris."
