"""Assigns KV-cache blocks to requests and finds cached prefixes. No torch.

A block's content is identified by a hash chained over all tokens before it, seeded with the request's salt, so that
equal blocks after different prefixes, or under different salts, never match.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from local_engine.block_pool import BlockPool
from local_engine.request import Request

HASH_BYTES = 16


def chain_hash(parent: bytes, token_ids: list[int]) -> bytes:
    """Hash of a block with these tokens after the block with hash `parent`."""
    return blake2b(array("I", token_ids).tobytes(), digest_size=HASH_BYTES, key=parent).digest()


def root_hash(cache_salt: str) -> bytes:
    """The start of a salt's chains."""
    return blake2b(cache_salt.encode(), digest_size=HASH_BYTES, person=b"breakeven-salt").digest()


class KvCacheManager:
    """Block tables of all requests over one pool."""

    def __init__(self, pool: BlockPool, *, block_size: int, has_prefix_cache: bool = True) -> None:
        self.pool = pool
        self.block_size = block_size
        self.has_prefix_cache = has_prefix_cache

    def attach_cached_prefix(self, request: Request) -> int:
        """Hold the longest cached prefix of a request that has no blocks; returns its length in tokens.

        Tokens whose logits the request needs are always left to compute.
        """
        for block in self._cached_blocks(request):
            self.pool.hold(block)
            request.block_ids.append(block)
        request.registered_blocks = len(request.block_ids)
        request.computed_tokens = len(request.block_ids) * self.block_size
        return request.computed_tokens

    def cached_prefix(self, request: Request) -> int:
        """Length of the prefix that `attach_cached_prefix` would find now."""
        return sum(self.block_size for _ in self._cached_blocks(request))

    def _cached_blocks(self, request: Request) -> Iterator[int]:
        if not self.has_prefix_cache:
            return
        self._extend_hashes(request)
        for content_hash in request.block_hashes[: self._usable_blocks(request)]:
            block = self.pool.find(content_hash)
            if block is None:
                return
            yield block

    def next_block(self, request: Request) -> bytes | None:
        """Hash of the block after those attached, if a cached block of that hash would be attached too."""
        at = len(request.block_ids)
        return request.block_hashes[at] if self.has_prefix_cache and at < self._usable_blocks(request) else None

    def unregistered_blocks(self, request: Request, computed_tokens: int) -> list[bytes]:
        """Hashes of full blocks within these tokens that cannot be found yet."""
        return request.block_hashes[request.registered_blocks : computed_tokens // self.block_size]

    def reserve(self, request: Request, tokens: int) -> bool:
        """Makes room for the next `tokens` tokens; False, changing nothing, if the pool has too few free blocks."""
        needed = -(-(request.computed_tokens + tokens) // self.block_size) - len(request.block_ids)
        if needed <= 0:
            return True
        blocks = self.pool.allocate(needed)
        if blocks is None:
            return False
        request.block_ids.extend(blocks)
        return True

    def register_computed(self, request: Request, computed_tokens: int) -> None:
        """Makes the full blocks among these tokens findable. Call after the step that computed them has succeeded."""
        if not self.has_prefix_cache:
            return
        full = computed_tokens // self.block_size
        if full > request.registered_blocks:
            self._extend_hashes(request)
            for index in range(request.registered_blocks, full):
                self.pool.register(request.block_ids[index], request.block_hashes[index])
            request.registered_blocks = full

    def release(self, request: Request) -> None:
        """Returns all blocks; computed ones stay findable until evicted."""
        self.pool.release(request.block_ids[::-1])
        request.block_ids = []
        request.registered_blocks = 0
        request.computed_tokens = 0

    def _usable_blocks(self, request: Request) -> int:
        return min(request.skippable_tokens // self.block_size, len(request.block_hashes))

    def _extend_hashes(self, request: Request) -> None:
        hashes = request.block_hashes
        parent = hashes[-1] if hashes else root_hash(request.cache_salt)
        for start in range(
            len(hashes) * self.block_size, len(request.token_ids) - self.block_size + 1, self.block_size
        ):
            parent = chain_hash(parent, request.token_ids[start : start + self.block_size])
            hashes.append(parent)
