"""What top-k, top-p and min-p keep, compared with their definition on a full sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.sampling.filters import candidate_distribution
from local_engine.sampling.sampling_params import SamplingParams

VOCABULARY = 600


def make_logits(seed: int, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def kept(logits: torch.Tensor, params: SamplingParams) -> dict[int, float]:
    """Which tokens may be drawn and with what probability, by the code under test."""
    probabilities, ids = candidate_distribution(logits, params)
    names = range(len(probabilities)) if ids is None else ids.tolist()
    whole = float(probabilities.sum())
    return {int(i): float(p) / whole for i, p in zip(names, probabilities, strict=True) if p > 0}


def defined(logits: torch.Tensor, params: SamplingParams) -> dict[int, float]:
    """The filters by definition, on a full sort: top-k, then min-p, then top-p over what top-k left."""
    shares: list[float] = (logits / params.temperature).softmax(-1).tolist()
    order = sorted(enumerate(shares), key=lambda pair: pair[1], reverse=True)
    if params.top_k:
        order = order[: params.top_k]
    whole = sum(p for _, p in order)
    allowed: list[tuple[int, float]] = []
    before = 0.0
    for i, p in order:
        if p >= params.min_p * order[0][1] and (params.top_p == 1.0 or before < params.top_p * whole):
            allowed.append((i, p))
        before += p
    total = sum(p for _, p in allowed)
    return {i: p / total for i, p in allowed}


@settings(max_examples=70)
@given(
    seed=st.integers(0, 50),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 7, 300, 5000]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.5]),
)
def test_filters_keep_what_their_definition_keeps(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ours, expected = kept(make_logits(seed), params), defined(make_logits(seed), params)
    # A token whose cumulative mass is within rounding of top_p may fall on either side.
    assert len(set(ours) ^ set(expected)) <= 1
    for token in set(ours) & set(expected):
        assert ours[token] == pytest.approx(expected[token], rel=0.02)


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999])
def test_a_wide_nucleus_is_found_without_putting_its_tokens_in_order(
    top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting 49,152 probabilities with their ids takes four milliseconds."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the whole vocabulary was sorted")

    logits = make_logits(5, spread=0.3)
    expected = defined(logits, SamplingParams(top_p=top_p))
    monkeypatch.setattr(torch.Tensor, "sort", refused)
    assert set(kept(logits, SamplingParams(top_p=top_p))) == set(expected)


@pytest.mark.parametrize("top_p", [0.501, 0.75, 0.999])
def test_of_equal_tokens_as_many_stay_as_reach_the_line(top_p: float) -> None:
    assert len(kept(torch.zeros(1000), SamplingParams(top_p=top_p))) == 1000 * top_p
