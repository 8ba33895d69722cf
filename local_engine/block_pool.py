"""The KV cache's blocks: who holds them, which are free, which still contain a known prefix. No torch, no tokens.

Free blocks are in one queue. Blocks without reusable content are at its front; blocks whose content has a hash are
appended when released, so the least recently used cached block is evicted first, and only after every empty one.
Invariants: a block is free exactly when its reference count is 0; free + used = total; a hash names at most one block.
"""

from collections import OrderedDict


class BlockPool:
    """A fixed number of blocks, reference-counted, with an index of their contents."""

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError(f"a block pool needs at least one block, not {blocks}")
        self.total_blocks = blocks
        self._references = [0] * blocks
        self._hash_of: list[bytes | None] = [None] * blocks
        self._block_of: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, including those with reusable content."""
        return len(self._free)

    @property
    def cached_blocks(self) -> int:
        """Blocks, held or free, in which a prefix can be found."""
        return len(self._block_of)

    def references(self, block: int) -> int:
        """How many requests hold the block."""
        return self._references[block]

    def find(self, content_hash: bytes) -> int | None:
        """The block with this content, held or free."""
        return self._block_of.get(content_hash)

    def allocate(self, count: int) -> list[int] | None:
        """Takes `count` blocks, evicting the least recently used contents; None if too few are free."""
        if count > len(self._free):
            return None
        return [self._take_oldest() for _ in range(count)]

    def _take_oldest(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._references[block] = 1
        return block

    def hold(self, block: int) -> None:
        """Adds a reference to a block found by its content."""
        if self._references[block] == 0:
            del self._free[block]
        self._references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Drops one reference each. Pass a request's blocks last first, so that its prefix is evicted last."""
        for block in blocks:
            if self._references[block] < 1:
                raise RuntimeError(f"block {block} released more often than held")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._hash_of[block] is None:
                    self._free.move_to_end(block, last=False)

    def register(self, block: int, content_hash: bytes) -> None:
        """Records the content of a full block. If another block has the same content, this one stays anonymous."""
        if content_hash not in self._block_of:
            self._forget(block)
            self._block_of[content_hash] = block
            self._hash_of[block] = content_hash

    def _forget(self, block: int) -> None:
        content_hash = self._hash_of[block]
        if content_hash is not None:
            del self._block_of[content_hash]
            self._hash_of[block] = None
