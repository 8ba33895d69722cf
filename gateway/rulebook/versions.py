"""Versions of the routing rules, and the store that keeps them. Values and protocols only."""

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredRules:
    """An immutable version: `version` is the hash of its text."""

    version: str
    text: str
    author: str
    reason: str
    created_at_us: int


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of the active version; `previous` is null for the first."""

    version: str
    previous: str | None
    author: str
    reason: str
    at_us: int


class RulesStore(Protocol):
    """Versions and the active one. `activate` writes the audit record in the same transaction."""

    async def put(self, rules: StoredRules) -> None:
        """Stores a version; an existing one keeps its first author and reason."""
        ...

    async def get(self, version: str) -> StoredRules | None: ...

    async def versions(self) -> Sequence[StoredRules]:
        """Newest first."""
        ...

    async def active(self) -> str | None: ...

    async def activate(self, activation: Activation, *, diff: str) -> bool:
        """False if the active version is no longer `activation.previous`."""
        ...

    async def activations(self) -> Sequence[Activation]:
        """Newest first."""
        ...


def text_version(text: str) -> str:
    """Version of a rules text: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def text_diff(old: str, new: str, old_name: str, new_name: str) -> str:
    """A unified diff; empty when nothing changed."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="")
    return "\n".join(lines)
