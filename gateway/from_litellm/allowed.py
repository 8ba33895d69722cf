"""Translates the models that a LiteLLM key may call into our names. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

OF_TEAM: Final = "all-team-models"
ALL: Final = frozenset({"all-proxy-models", "*", OF_TEAM})
"""Names that mean every model; `all-team-models` does if the team has no list, or lists that name itself."""
NONE: Final = "no-default-models"


@dataclass(frozen=True, slots=True)
class Models:
    """`here` gives our models for a name, none if it is unknown; `groups` are names that stand for several."""

    here: Callable[[str], Sequence[str]]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def named(self, listed: Sequence[str], team: Sequence[str] | None = None) -> frozenset[str] | None:
        """Expands a list of LiteLLM's, in its own names. None means every model, and so does an empty list."""
        if OF_TEAM in listed:
            of_team = [OF_TEAM] if not team or OF_TEAM in team else team
            listed = [*of_team, *(one for one in listed if one != OF_TEAM)]
        if not listed or not ALL.isdisjoint(listed):
            return None
        return frozenset(name for one in listed if one != NONE for name in self.groups.get(one, (one,)))

    def ours(self, lists: Iterable[frozenset[str] | None], notes: list[str]) -> tuple[str, ...] | None:
        """The models that all lists allow. Unknown ones stay: they may be added later, and dropping them could allow
        more."""
        allowed: frozenset[str] | None = None
        for one in lists:
            if one is not None:
                allowed = one if allowed is None else allowed & one
        if allowed is None:
            return None
        found: dict[str, None] = {}
        for name in sorted(allowed):
            here = self.here(name)
            if not here:
                what = "every model of a provider, and a list here names each" if "*" in name else "no model here yet"
                notes.append(f"it may call {name}, which is {what}")
            found |= dict.fromkeys(here or (() if "*" in name else (name,)))
        if not found:
            notes.append("so it may call no model at all: `breakeven keys change --model NAME`")
        return tuple(found)
