"""Log-probabilities of a prompt's own tokens equal those of a single forward pass, however the prompt was computed."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.native.native_runner import NativeRunner
from local_engine.request import Request
from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.sampling.prompt_scores import POSITIONS_AT_ONCE
from local_engine.sampling.sampling_params import SamplingParams
from tests.unit.local_engine.scripted import expected_answer, make_core, make_request, next_token, run_all
from tests.unit.local_engine.tiny_models import PreTrainedModel, make_model, write_folder

PROMPT: list[int] = torch.randint(0, 256, (200,), generator=torch.Generator().manual_seed(3)).tolist()
FAMILIES = {"torch": ("qwen2", 16), "native": ("qwen3", 64)}
Builder = Callable[..., Engine]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    """Models with heads of 16 use torch's products; with heads of 64 the native decoder, if the machine can run it."""
    return make_model(*FAMILIES[request.param])


@pytest.fixture(scope="module")
def build(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    loaded = load_safetensors(write_folder(model, tmp_path_factory.mktemp("model")))

    def built(*, max_tokens_per_step: int = 512, is_deterministic: bool = False) -> Engine:
        config = EngineConfig(
            kv_blocks=32,
            context_window=256,
            max_tokens_per_step=max_tokens_per_step,
            is_deterministic=is_deterministic,
        )
        return assemble(loaded, config)

    return built


def score(engine: Engine, ids: list[int], *, max_tokens: int = 0) -> list[TokenLogprobs]:
    request = Request("r", list(ids), SamplingParams(temperature=0.0, max_tokens=max_tokens, prompt_logprobs=3))
    engine.core.add(request)
    while engine.core.has_work:
        assert all(delta.error is None for delta in engine.core.step().deltas)
    assert request.finish_reason == "length"
    assert request.output_tokens == max_tokens
    assert engine.kv_cache.pool.free_blocks == engine.kv_cache.pool.total_blocks
    return request.prompt_logprobs


def test_they_are_those_of_transformers_over_the_whole_prompt(model: PreTrainedModel, build: Builder) -> None:
    assert len(PROMPT) > POSITIONS_AT_ONCE
    with torch.inference_mode():
        theirs = model(torch.tensor([PROMPT])).logits[0, :-1].log_softmax(-1)
    ours = score(build(), PROMPT)
    assert [entry.token_id for entry in ours] == PROMPT[1:]
    for row, entry in zip(theirs, ours, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-4)
        assert entry.rank == int((row > row[entry.token_id]).sum()) + 1
        best = row.topk(3)
        assert [token for token, _ in entry.top] == best.indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("budget", [1, 7, 130, 512])
def test_no_chunk_size_changes_them(build: Builder, budget: int) -> None:
    """Bitwise in the native decoder, whose rows do not depend on their batch."""
    engine = build(max_tokens_per_step=budget)
    ours, whole = score(engine, PROMPT), score(build(), PROMPT)
    if isinstance(engine.runner, NativeRunner):
        assert ours == whole
    assert [entry.logprob for entry in ours] == pytest.approx([entry.logprob for entry in whole], abs=1e-4)


def test_a_prompt_that_the_cache_holds_is_computed_again(build: Builder) -> None:
    engine = build()
    first = score(engine, PROMPT, max_tokens=2)
    again = Request("r", list(PROMPT), SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=3))
    plain = Request("p", list(PROMPT), SamplingParams(temperature=0.0, max_tokens=1))
    for request in (again, plain):
        engine.core.add(request)
    while engine.core.has_work:
        engine.core.step()
    assert again.cached_prompt_tokens == 0
    assert again.prompt_logprobs == first
    assert plain.cached_prompt_tokens == len(PROMPT) // 16 * 16
    assert plain.prompt_logprobs == []


def test_the_deterministic_mode_gives_the_same_bits_beside_others(build: Builder) -> None:
    engine = build(is_deterministic=True)
    alone = score(engine, PROMPT)
    beside = [Request(str(i), PROMPT[i:] + PROMPT[:i], SamplingParams(max_tokens=3)) for i in (1, 2)]
    scored = Request("r", list(PROMPT), SamplingParams(max_tokens=0, prompt_logprobs=3))
    for request in (beside[0], scored, beside[1]):
        engine.core.add(request)
    while engine.core.has_work:
        engine.core.step()
    assert scored.prompt_logprobs == alone


def test_a_greedy_answer_read_again_as_a_prompt_is_the_likeliest(build: Builder) -> None:
    engine = build()
    request = Request("r", PROMPT[:30], SamplingParams(temperature=0.0, max_tokens=9, logprobs=0))
    engine.core.add(request)
    drawn: list[TokenLogprobs] = []
    while engine.core.has_work:
        for delta in engine.core.step().deltas:
            drawn += delta.logprobs
    read = score(engine, request.token_ids)[-9:]
    assert [(entry.token_id, entry.rank) for entry in read] == [(entry.token_id, 1) for entry in drawn]
    assert [entry.logprob for entry in read] == pytest.approx([entry.logprob for entry in drawn], abs=1e-4)


def test_a_prompt_of_one_token_has_none(build: Builder) -> None:
    assert score(build(), [65]) == []
    assert score(build(), [65], max_tokens=1) == []


@cache
def likeliest(prompt: tuple[int, ...]) -> list[int]:
    """The scripted model's most likely token after each token but the last."""
    return [next_token(list(prompt[:end])) for end in range(1, len(prompt))]


PREFIXES = ([], [5, 4, 3, 2, 1, 0, 1, 2], [5, 4, 3, 2, 9, 9, 9, 9, 9, 9, 9])
DRAWN = st.tuples(
    st.integers(0, 2),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from([None, 1, 1]),
    st.sampled_from([0, 1, 8]),
)


@given(
    raw=st.lists(DRAWN, min_size=1, max_size=6),
    block_size=st.sampled_from([1, 2, 3, 8]),
    running=st.integers(1, 4),
    budget=st.integers(1, 24),
    spare=st.integers(0, 8),
    stagger=st.integers(1, 5),
    drafts=st.sampled_from([0, 3]),
)
def test_nothing_that_runs_beside_it_or_takes_its_blocks_changes_them(
    raw: list[tuple[int, list[int], int | None, int]],
    block_size: int,
    running: int,
    budget: int,
    spare: int,
    stagger: int,
    drafts: int,
) -> None:
    blocks = -(-(11 + 12 + 8) // block_size) + spare
    core, kv_cache = make_core(
        blocks=blocks, block_size=block_size, running=running, budget=budget, speculative_tokens=drafts
    )
    requests = [
        make_request(str(i), PREFIXES[prefix] + rest, prompt_logprobs=top, max_tokens=max_tokens)
        for i, (prefix, rest, top, max_tokens) in enumerate(raw)
    ]
    run_all(core, requests, stagger=stagger)
    for request in requests:
        prompt = tuple(request.prompt_token_ids)
        told = [entry.top[0][0] for entry in request.prompt_logprobs]
        assert told == ([] if request.params.prompt_logprobs is None else likeliest(prompt))
        assert request.output_token_ids == expected_answer(list(prompt), request.params.max_tokens)
    assert kv_cache.pool.free_blocks == blocks


def test_a_request_that_gave_way_takes_up_where_it_was() -> None:
    """Its scored tokens' prefix may come from the cache."""
    core, _ = make_core(blocks=10, block_size=2, running=2, budget=4)
    old = make_request("old", [1, 2, 3], max_tokens=12)
    young = make_request("young", [7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], prompt_logprobs=1, max_tokens=2)
    run_all(core, [old, young])
    assert young.preemptions > 0
    assert [entry.top[0][0] for entry in young.prompt_logprobs] == likeliest(tuple(young.prompt_token_ids))
