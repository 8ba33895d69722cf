"""Deterministic mode: a request alone gives bitwise the same answer as in random batches."""

import random

import pytest

from local_engine.assembly import Engine
from local_engine.request import Request
from tests.engine.conftest import EngineBuilder, greedy
from tests.engine.prompts import CHATS, long_text

pytestmark = pytest.mark.engine

Observed = list[tuple[int, float, tuple[tuple[int, float], ...]]]


def observe(engine: Engine, watched: Request, others: list[Request], order: random.Random) -> Observed:
    """Every token of `watched` with exact log-probabilities, while `others` start and end."""
    seen: Observed = []
    waiting = [*others]
    order.shuffle(waiting)
    start_after = order.randrange(4) if others else 0
    for step in range(10_000):
        if step == start_after:
            engine.core.add(watched)
        if waiting and order.random() < 0.5:
            engine.core.add(waiting.pop())
        if watched.finish_reason is not None:
            break
        for delta in engine.core.step().deltas:
            if delta.request is watched:
                seen += [(entry.token_id, entry.logprob, entry.top) for entry in delta.logprobs]
    for request in others:
        engine.core.cancel(request)
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_a_request_alone_equals_itself_in_a_random_batch(build: EngineBuilder, seed: int) -> None:
    engine = build(is_deterministic=True, kv_blocks=40)
    order = random.Random(seed)
    encode = engine.tokenizer.encode
    prompt = encode(long_text(90 + 20 * seed)) if seed % 2 else encode(CHATS[seed])
    sampled = {"temperature": 0.9, "seed": 11, "top_p": 0.95} if seed > 1 else {}

    def watched() -> Request:
        return greedy(prompt, tokens=6, name="watched", logprobs=3, **sampled)

    alone = observe(engine, watched(), [], random.Random(0))
    assert len(alone) == 6
    others = [greedy(encode(CHATS[i * 7 + seed]), name=f"other {i}", tokens=order.randrange(2, 6)) for i in range(5)]
    assert observe(engine, watched(), others, order) == alone
