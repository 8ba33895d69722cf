"""Answers of a tiny model, compared with those of transformers."""

import pytest
import torch

from local_engine.assembly import Engine
from local_engine.config import EngineConfig
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from tests.unit.local_engine.tiny_models import PreTrainedModel

SMALL = EngineConfig(kv_blocks=32, context_window=128, max_tokens_per_step=24)
PROMPT = [7, 80, 3, 200, 5, 5, 91, 14, 33, 2, 150, 77, 8, 9, 10, 11, 64, 32, 16, 8, 4, 2, 1, 0, 250, 128, 99, 98]


def answer(engine: Engine) -> tuple[list[int], list[float]]:
    """Greedy ids and their log-probabilities; the prompt takes two chunks."""
    request = Request("r", list(PROMPT), SamplingParams(temperature=0.0, max_tokens=12, logprobs=0))
    engine.core.add(request)
    logprobs: list[float] = []
    while engine.core.has_work:
        for delta in engine.core.step().deltas:
            logprobs += [entry.logprob for entry in delta.logprobs]
    return request.output_token_ids, logprobs


def assert_same(engine: Engine, model: PreTrainedModel) -> None:
    ids, logprobs = answer(engine)
    with torch.inference_mode():
        theirs = model(torch.tensor([PROMPT + ids[:-1]])).logits[0, len(PROMPT) - 1 :].log_softmax(-1)
    assert ids == theirs.argmax(-1).tolist()
    assert logprobs == pytest.approx(theirs.max(-1).values.tolist(), abs=1e-3)
