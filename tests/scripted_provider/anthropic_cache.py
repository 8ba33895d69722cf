"""Anthropic's prompt cache according to its documentation: what a Messages request reads, writes and pays in full."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from backends.usage import Usage

LOOKED_BACK = 20
MOST_MARKS = 4
CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class AnthropicCache:
    """The cache of one workspace. Entries live for five minutes from their last use; four characters are one token."""

    least_tokens: int = 512
    ttl_seconds: float = 300.0
    now: float = 0.0
    output_tokens: int = 40
    _until: dict[bytes, float] = field(default_factory=dict[bytes, float])

    def usage(self, fields: Mapping[str, object]) -> Usage:
        """Raises ValueError for what Anthropic rejects: more than four marks, or one on an empty text."""
        blocks = _blocks(fields)
        marked = [number for number, block in enumerate(blocks) if "cache_control" in block]
        if len(marked) > MOST_MARKS:
            raise ValueError(f"a maximum of {MOST_MARKS} blocks with cache_control may be provided")
        if any(blocks[number].get("text") == "" for number in marked):
            raise ValueError("cache_control cannot be set for empty text blocks")
        hashes: list[bytes] = []
        lengths: list[int] = []
        so_far, length = hashlib.sha256(), 0
        for block in blocks:
            encoded = msgspec.json.encode({name: part for name, part in block.items() if name != "cache_control"})
            so_far.update(encoded)
            length += len(encoded)
            hashes.append(so_far.digest())
            lengths.append(length // CHARACTERS_PER_TOKEN)
        read = max((self._found(hashes, lengths, mark) for mark in marked), default=0)
        kept = [number for number in marked if lengths[number] >= self.least_tokens]
        for number in kept:
            self._until[hashes[number]] = self.now + self.ttl_seconds
        return Usage(
            input_tokens=lengths[-1],
            cached_input_tokens=read,
            cache_write_5m_tokens=max((lengths[number] for number in kept), default=read) - read,
            output_tokens=self.output_tokens,
        )

    def _found(self, hashes: list[bytes], lengths: list[int], mark: int) -> int:
        for number in range(mark, max(-1, mark - LOOKED_BACK), -1):
            if self._until.get(hashes[number], -1.0) > self.now:
                self._until[hashes[number]] = self.now + self.ttl_seconds
                return lengths[number]
        return 0


def _blocks(fields: Mapping[str, object]) -> list[dict[str, Any]]:
    """The blocks, in the order in which a prompt is read."""
    system = fields.get("system") or []
    found = [*cast(list[dict[str, Any]], fields.get("tools") or [])]
    found += [{"type": "text", "text": system}] if isinstance(system, str) else cast(list[dict[str, Any]], system)
    for message in cast(list[dict[str, Any]], fields["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [{"role": message["role"], **block} for block in blocks]
    return found
