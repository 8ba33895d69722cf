"""Drawing tokens: penalties, biases, seeds, drafts."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.errors import InvalidRequest
from local_engine.request import Request
from local_engine.sampling.sampler import Sampler, bias_row, change_logits, token_logprobs
from local_engine.sampling.sampling_params import Constraint, SamplingParams
from tests.unit.local_engine.scripted import make_request

VOCABULARY = 600
CPU = torch.device("cpu")


def make_logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    sampler, request = Sampler(torch.device("cpu")), make_request("r", [1], temperature=1.0, seed=1)
    draws = 4000
    counts = torch.bincount(
        torch.tensor([sampler.draw(logits[None], [request])[0].token_ids[0] for _ in range(draws)]), minlength=4
    )
    # Chi-square with 3 degrees of freedom: 16.3 is exceeded once in a thousand; the seed fixes the outcome.
    expected = logits.exp() * draws
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.3


def test_a_seed_repeats_and_another_differs() -> None:
    logits = make_logits(3)[None]

    def draws(seed: int) -> list[int]:
        sampler, request = Sampler(torch.device("cpu")), make_request("r", [1], temperature=2.0, seed=seed)
        return [sampler.draw(logits, [request])[0].token_ids[0] for _ in range(20)]

    assert draws(4) == draws(4) != draws(5)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_break_their_own_row_alone(broken: float) -> None:
    """Damaged weights answered with token 0, as if all were well."""
    logits = torch.stack([make_logits(1), make_logits(2)])
    logits[0, 7] = broken
    requests = [make_request(str(number), [1], temperature=1.0 - number) for number in range(2)]
    damaged, whole = Sampler(torch.device("cpu")).draw(logits, requests)
    assert (damaged.is_broken, damaged.token_ids) == (True, [])
    assert (whole.is_broken, whole.token_ids) == (False, [int(logits[1].argmax())])


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63 - 1])
def test_every_seed_that_is_taken_draws(seed: int) -> None:
    request = make_request("r", [1], temperature=1.0, seed=seed)
    [drawn] = Sampler(torch.device("cpu")).draw(make_logits(1)[None], [request])
    assert 0 <= drawn.token_ids[0] < VOCABULARY


def test_what_rounding_changes_changes_next_to_no_draw() -> None:
    """Another batch, cache or number of threads changes a logit's last bits; a seed's answer must not depend on
    them."""
    logits = torch.randn(50_000, generator=torch.Generator().manual_seed(8))

    def draws(rows: torch.Tensor) -> list[int]:
        sampler, request = Sampler(torch.device("cpu")), make_request("r", [1], temperature=1.0, seed=2)
        return [sampler.draw(rows[None], [request])[0].token_ids[0] for _ in range(200)]

    nearly = logits + 1e-6 * torch.randn(50_000, generator=torch.Generator().manual_seed(9))
    assert draws(nearly) == draws(logits)


def test_a_draft_changes_no_sampled_token() -> None:
    """Each position uses the same random numbers, whatever the draft is."""
    rows = torch.stack([make_logits(seed) for seed in range(4)])

    def draw(drafts: list[int]) -> list[int]:
        sampler, request = Sampler(torch.device("cpu")), make_request("r", [1], temperature=1.5, seed=9)
        request.draft_token_ids = drafts
        return sampler.draw(rows[: len(drafts) + 1], [request])[0].token_ids

    first = draw([])[0]
    wrong = (first + 1) % VOCABULARY
    assert draw([wrong]) == [first]
    second = draw([first, wrong])
    assert second[0] == first
    full = draw([first, second[1], 0])
    assert full[:2] == second[:2]


def test_rows_do_not_depend_on_their_neighbours() -> None:
    requests = [make_request(str(i), [1], temperature=1.0, seed=i) for i in range(3)]
    rows = torch.stack([make_logits(i) for i in range(3)])
    together = [drawn.token_ids for drawn in Sampler(torch.device("cpu")).draw(rows.clone(), requests)]
    alone = [Sampler(torch.device("cpu")).draw(rows[i : i + 1], [requests[i]])[0].token_ids for i in range(3)]
    assert together == alone


def test_penalties_and_bias() -> None:
    request = make_request(
        "r", [0, 1], presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0, logit_bias={5: 7.0}
    )
    request.token_ids += [2, 2, 3]
    logits = torch.tensor([4.0, -4.0, 4.0, 4.0, 4.0, 0.0])
    changed = change_logits(logits, request, [3], bias_row(request.params, len(logits), CPU))
    assert changed.tolist() == [2.0, -8.0, 2.0 - 0.5 - 0.5, 2.0 - 0.5 - 0.5, 4.0, 7.0]
    assert logits.tolist() == [4.0, -4.0, 4.0, 4.0, 4.0, 0.0]


@pytest.mark.parametrize("constraint", [None, Constraint("grammar", "", "tools", mark=0)])
def test_the_end_is_banned_until_enough_tokens(constraint: Constraint | None) -> None:
    """Also if only text after a mark is constrained, as such a grammar does not contain the end."""
    request = make_request("r", [0], min_tokens=2, stop_token_ids=frozenset({1}), constraint=constraint)
    logits = torch.tensor([0.0, 9.0, 1.0])
    assert Sampler(torch.device("cpu")).draw(logits[None], [request])[0].token_ids == [2]
    request.token_ids += [2, 2]
    assert Sampler(torch.device("cpu")).draw(logits[None], [request])[0].token_ids == [1]


def test_logprobs_are_those_of_the_model() -> None:
    logits = make_logits(1)
    entry = token_logprobs(logits, 17, 3)
    expected = logits.log_softmax(-1)
    assert entry.logprob == pytest.approx(float(expected[17]))
    assert [i for i, _ in entry.top] == expected.topk(3).indices.tolist()


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": 2.0}, "min_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": ("",)}, "stop"),
        ({"logprobs": 21}, "top_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
    ],
)
def test_values_out_of_bounds_are_refused(changes: dict[str, object], parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**changes)  # pyright: ignore[reportArgumentType]
    assert caught.value.parameter == parameter


@settings(max_examples=30)
@given(
    seed=st.integers(0, 30),
    prompt=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    answer=st.lists(st.integers(0, 9), max_size=6),
    penalty=st.sampled_from([0.5, 1.0, 1.7]),
    banned=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_repetition_and_banned_words_are_as_in_transformers(
    seed: int, prompt: list[int], answer: list[int], penalty: float, banned: list[list[int]]
) -> None:
    """Drawn tokens count, whether from earlier steps or this one; bans consider only the answer."""
    from transformers import NoBadWordsLogitsProcessor, RepetitionPenaltyLogitsProcessor

    logits = make_logits(seed)
    params = SamplingParams(repetition_penalty=penalty, banned=tuple(map(tuple, banned)))
    request = Request("r", prompt, params)
    request.token_ids += answer[: len(answer) // 2]
    ours = change_logits(logits, request, answer[len(answer) // 2 :], None)
    theirs = logits[None]
    if penalty != 1.0:
        seen = torch.tensor([prompt + answer])
        theirs = RepetitionPenaltyLogitsProcessor(penalty)(seen, theirs)
    theirs = NoBadWordsLogitsProcessor(banned)(torch.tensor([answer], dtype=torch.int64), theirs)
    assert torch.equal(ours, theirs[0])


class ReadBias(dict[int, float]):
    """Counts how often all of it is read."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        self.times += 1
        return super().__iter__()


def test_a_bias_is_read_once_an_answer_and_forgotten_with_it() -> None:
    """One may name all 49,152 tokens: reading it in every step took twelve milliseconds."""
    bias = ReadBias({7: 100.0})
    sampler, request = Sampler(CPU), make_request("r", [1], logit_bias=bias)
    for seed in range(3):
        assert sampler.draw(make_logits(seed)[None], [request])[0].token_ids == [7]
    assert bias.times == 1
    sampler.forget("r")
    again = make_request("r", [1], logit_bias={9: 100.0})
    assert sampler.draw(make_logits(1)[None], [again])[0].token_ids == [9]


def test_only_allowed_tokens_keep_their_logits() -> None:
    logits = make_logits(4)
    request = make_request("r", [1], allowed_token_ids=frozenset({3, 7}))
    changed = change_logits(logits, request, [], bias_row(request.params, len(logits), CPU))
    assert changed.isfinite().nonzero().flatten().tolist() == [3, 7]
    assert torch.equal(changed[[3, 7]], logits[[3, 7]])
