"""Fingerprints of a conversation's beginnings, to recognise its next turn. Pure; keeps no text."""

from collections.abc import Iterable
from hashlib import blake2b

LONGEST = 32
"""How many turns back a conversation is recognised; an answer and the next question are two."""

Prefix = tuple[bytes, int]
"""The fingerprint of the first turns, and roughly how many tokens they have."""


def prefixes_of(turns: Iterable[tuple[str, str]], tools: Iterable[bytes] = ()) -> tuple[Prefix, ...]:
    """One prefix for the first turn, which conversations share if it is a system prompt, and one for each of the last
    turns; shortest first. `tools` precede everything in every provider's prompt, so other tools change all
    fingerprints."""
    found: list[Prefix] = []
    so_far, total = blake2b(digest_size=16), 0
    for tool in tools:
        so_far.update(tool)
    for role, text in turns:
        encoded = text.encode("utf-8", "surrogatepass")
        so_far.update(f"{role}\0{len(encoded)}\0".encode("utf-8", "surrogatepass") + encoded)
        total += len(text) // 4 + 4
        found.append((so_far.digest(), total))
    del found[1:-LONGEST]
    return tuple(found)
