"""Which beginnings of which conversations each model still has in its prompt cache, as far as we can know.

Providers keep the prompt of an answered call for a while and charge repeated parts at a fraction of the price, so a
conversation is cheapest where it was last. Knows no provider by name.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from gateway.ledger.entry import Entry
from gateway.upstreams.prompt_prefixes import Prefix

MOST_PREFIXES = 50_000
HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PromptCache:
    """How a backend caches prompts: in whole steps of tokens above a minimum, for a time since the last use.

    `is_automatic` False: only what the caller marked, so that reported usage is the only evidence.
    `is_replicas_own`: an engine that this replica runs for itself; other replicas' engines have caches of their own.
    `marks`: who sets required marks: only callers, or also the gateway for those who do not.
    """

    ttl_seconds: float = 300.0
    least_tokens: int = 1024
    step_tokens: int = 128
    is_automatic: bool = True
    is_replicas_own: bool = False
    marks: Literal["callers", "auto"] = "callers"

    def kept(self, tokens: int) -> int:
        """How many of a prefix's tokens are cached."""
        return tokens - tokens % self.step_tokens if tokens >= self.least_tokens else 0


AUTOMATIC = PromptCache()
SENT: Final = ""
"""Used as a model name to record that a prompt was sent at all; no model has this name."""
SENT_SECONDS: Final = 300.0
"""Lifetime of Anthropic's five-minute cache."""


class WarmPrefixes(Protocol):
    """Shared by a process or a fleet. Per tenant, because providers and engines never share across tenants."""

    def lookup(self, tenant: str, prefixes: Sequence[Prefix], now: float) -> dict[str, int]:
        """Model -> the most tokens of these prefixes that are warm there; models without any are left out."""
        ...

    def note(
        self,
        tenant: str,
        prefix: Prefix,
        model: str,
        warm_tokens: int,
        until: float,
        *,
        is_replicas_own: bool = False,
    ) -> None:
        """Until `until` this model has this many tokens of the prefix warm; with `is_replicas_own` only in this
        replica."""
        ...


@dataclass(slots=True)
class MemoryWarmPrefixes:
    """In-process store that evicts the least recently used. Times are seconds of one monotonic clock."""

    most: int = MOST_PREFIXES
    _known: OrderedDict[tuple[str, bytes], dict[str, tuple[int, float]]] = field(
        default_factory=OrderedDict[tuple[str, bytes], dict[str, tuple[int, float]]]
    )

    def lookup(self, tenant: str, prefixes: Sequence[Prefix], now: float) -> dict[str, int]:
        warm: dict[str, int] = {}
        for fingerprint, _ in prefixes:  # shortest first: a longer warm prefix wins
            for model, (tokens, until) in self._known.get((tenant, fingerprint), {}).items():
                if until > now and tokens > 0:
                    warm[model] = max(tokens, warm.get(model, 0))
        return warm

    def note(
        self,
        tenant: str,
        prefix: Prefix,
        model: str,
        warm_tokens: int,
        until: float,
        *,
        is_replicas_own: bool = False,
    ) -> None:
        place = (tenant, prefix[0])
        known = self._known.setdefault(place, {})
        if model not in known or known[model][1] <= until:  # late news must not shorten what is known
            known[model] = (warm_tokens, until)
        self._known.move_to_end(place)
        if len(self._known) > self.most:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)


def note_answer(
    warm: WarmPrefixes,
    caches: Mapping[str, PromptCache],
    entry: Entry,
    prefixes: Sequence[Prefix],
    now: float,
    *,
    notes_sent: bool = False,
) -> None:
    """Record what an answered request left warm: its whole prompt, and its first turn for other conversations.

    In the gateway's own token estimate, which the next decision compares with; for a provider that caches only what
    was marked, scaled by the share it reported. `notes_sent`: also record it as SENT.
    """
    if not prefixes or (entry.is_usage_estimated and not entry.output_tokens):
        return
    if notes_sent:
        for prefix in {prefixes[0], prefixes[-1]}:
            warm.note(entry.intent.tenant, prefix, SENT, prefix[1], now + SENT_SECONDS)
    cache = caches.get(entry.backend, AUTOMATIC)
    written = entry.cache_write_5m_tokens + entry.cache_write_1h_tokens
    share = 1.0
    if not cache.is_automatic:
        share = min(1.0, (entry.cached_input_tokens + written) / max(1, entry.input_tokens))
    until = now + max(cache.ttl_seconds, HOUR_SECONDS if entry.cache_write_1h_tokens else 0.0)
    for prefix in {prefixes[0], prefixes[-1]}:
        if kept := cache.kept(round(prefix[1] * share)):
            warm.note(entry.intent.tenant, prefix, entry.model, kept, until, is_replicas_own=cache.is_replicas_own)
