"""Block pool: properties over random histories, and the eviction order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from local_engine.block_pool import BlockPool

TOTAL = 6
NAMES = st.sampled_from([b"a", b"b", b"c"])
"""Few names, so that histories often find what they registered."""


class PoolHistory(RuleBasedStateMachine):
    """Random allocations, holds, releases and registrations, compared with plain reference counts."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(TOTAL)
        self.expected = [0] * TOTAL
        self.content: dict[bytes, int] = {}

    @rule(target=held, count=st.integers(0, TOTAL + 1))
    def take(self, count: int) -> tuple[int, ...]:
        free = self.expected.count(0)
        blocks = self.pool.allocate(count)
        if count > free:
            assert blocks is None
            return ()
        assert blocks is not None
        assert len(set(blocks)) == count
        for block in blocks:
            assert self.expected[block] == 0, "a block that somebody holds was given out"
            self.expected[block] = 1
            self.content = {name: at for name, at in self.content.items() if at != block}
        return tuple(blocks)

    @rule(name=NAMES, target=held)
    def hold_by_content(self, name: bytes) -> tuple[int, ...]:
        block = self.pool.find(name)
        assert block == self.content.get(name)
        if block is None:
            return ()
        self.pool.hold(block)
        self.expected[block] += 1
        return (block,)

    @rule(blocks=consumes(held))
    def release(self, blocks: tuple[int, ...]) -> None:
        self.pool.release(list(blocks))
        for block in blocks:
            self.expected[block] -= 1

    @rule(blocks=held, name=NAMES)
    def register(self, blocks: tuple[int, ...], name: bytes) -> None:
        # A consumed bundle value may have been released: only a held block can be registered.
        if not blocks or self.expected[blocks[0]] == 0:
            return
        self.pool.register(blocks[0], name)
        if name not in self.content:
            self.content = {key: at for key, at in self.content.items() if at != blocks[0]} | {name: blocks[0]}

    @invariant()
    def counts_agree(self) -> None:
        assert [self.pool.references(block) for block in range(TOTAL)] == self.expected
        assert self.pool.free_blocks == self.expected.count(0)
        assert self.pool.cached_blocks == len(self.content)
        assert {name: self.pool.find(name) for name in self.content} == self.content


TestPoolHistory = PoolHistory.TestCase


def test_a_block_released_twice_is_a_bug_that_shows() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="released more often"):
        pool.release(blocks)


@given(st.permutations(range(4)))
def test_cached_blocks_are_evicted_in_the_order_of_their_release_and_after_empty_ones(order: list[int]) -> None:
    pool = BlockPool(5)
    blocks = pool.allocate(4)
    assert blocks is not None
    for block in blocks:
        pool.register(block, bytes([block]))
    pool.release([blocks[i] for i in order])
    taken = [pool.allocate(1) for _ in range(5)]
    assert taken[0] not in [[block] for block in blocks]
    assert taken[1:] == [[blocks[i]] for i in order]


def test_a_second_block_with_known_content_stays_anonymous() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2) or []
    pool.register(first, b"same")
    pool.register(second, b"same")
    assert pool.find(b"same") == first
    pool.release([first, second])
    assert pool.cached_blocks == 1


def test_a_block_that_two_hold_is_free_when_both_have_let_go() -> None:
    pool = BlockPool(1)
    [block] = pool.allocate(1) or []
    pool.register(block, b"prefix")
    pool.hold(block)
    assert pool.references(block) == 2
    pool.release([block])
    assert (pool.references(block), pool.free_blocks, pool.allocate(1)) == (1, 0, None)
    pool.release([block])
    assert (pool.references(block), pool.free_blocks) == (0, 1)
    pool.hold(block)
    assert (pool.references(block), pool.free_blocks) == (1, 0), "free, its content still known, and held again"


def test_a_block_without_content_is_taken_before_one_that_was_released_earlier_and_is_known() -> None:
    pool = BlockPool(2)
    known, empty = pool.allocate(2) or []
    pool.register(known, b"prefix")
    pool.release([known])
    pool.release([empty])
    assert pool.allocate(1) == [empty]
    assert pool.find(b"prefix") == known


def test_a_pool_of_nothing_is_refused() -> None:
    assert BlockPool(1).free_blocks == 1
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(0)
