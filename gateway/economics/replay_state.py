"""What the replayed world remembers: warm prefixes at providers and busy slots of engines.

As long as nothing was decided differently, the logged facts are the truth and nothing is simulated: that is what
makes a replay under the logged rules exact. From the first difference on, what differs is simulated.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gateway.economics.replay_log import LoggedRequest
from gateway.ledger.entry import Facts

PURGE_EVERY = 100_000


@dataclass(frozen=True, slots=True)
class CacheRules:
    """A provider's prompt cache: prefixes of at least `minimum_tokens`, in whole steps, kept since the last touch."""

    ttl_seconds: float = 300.0
    minimum_tokens: int = 1024
    step_tokens: int = 128
    charges_writes: bool = False

    def warm_tokens(self, tokens: int, age_seconds: float) -> int:
        if age_seconds > self.ttl_seconds or tokens < self.minimum_tokens:
            return 0
        return tokens - tokens % self.step_tokens


@dataclass(slots=True)
class _Thread:
    """One conversation: per model, when its prompt was last sent there and how long it was."""

    touched: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    has_diverged: bool = False
    last_us: int = 0


class PrefixCaches:
    """Which prompt prefixes are warm where, per conversation."""

    def __init__(self, rules: Mapping[str, CacheRules], *, purge_every: int = PURGE_EVERY) -> None:
        self._rules = rules
        self._purge_every = purge_every
        self._threads: dict[str, _Thread] = {}
        self._longest_us = round(max((rule.ttl_seconds for rule in rules.values()), default=0.0) * 1e6)
        self._seen = 0

    @property
    def threads(self) -> int:
        """How many conversations are remembered."""
        return len(self._threads)

    def has_diverged(self, logged: LoggedRequest) -> bool:
        thread = self._threads.get(logged.conversation) if logged.conversation is not None else None
        return thread is not None and thread.has_diverged

    def warm_tokens(self, logged: LoggedRequest, model: str) -> int:
        """How much of this prompt `model` has warm, as the replayed past left it."""
        rules = self._rules.get(model)
        thread = self._threads.get(logged.conversation) if logged.conversation is not None else None
        if rules is None or thread is None or model not in thread.touched:
            return 0
        touched_us, tokens = thread.touched[model]
        shared = min(tokens, logged.served.input_tokens)
        return rules.warm_tokens(shared, (logged.served.at_us - touched_us) / 1e6)

    def warm_by_model(self, logged: LoggedRequest) -> dict[str, int]:
        warm = {model: self.warm_tokens(logged, model) for model in self._rules}
        return {model: tokens for model, tokens in warm.items() if tokens}

    def written_tokens(self, model: str, input_tokens: int, cached_tokens: int) -> int:
        rules = self._rules.get(model)
        if rules is None or not rules.charges_writes or input_tokens < rules.minimum_tokens:
            return 0
        return input_tokens - cached_tokens

    def touch(self, logged: LoggedRequest, model: str) -> None:
        """The prompt was sent to `model`."""
        if logged.conversation is None or not self._rules:
            return
        now = logged.served.at_us
        thread = self._threads.setdefault(logged.conversation, _Thread())
        thread.touched[model] = (now, logged.served.input_tokens)
        thread.last_us = now
        thread.has_diverged = thread.has_diverged or model != logged.model
        self._seen += 1
        if self._seen % self._purge_every == 0:
            self._purge(now)

    def _purge(self, now: int) -> None:
        """A thread that was never decided differently and is cold everywhere carries no information."""
        limit = now - self._longest_us
        self._threads = {
            name: thread for name, thread in self._threads.items() if thread.has_diverged or thread.last_us >= limit
        }


class EngineSlots:
    """An engine of this world's own: `slots` sequences at a time, first come first served."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._ends_us: list[int] = []

    def state(self, now_us: int) -> tuple[int, float]:
        """Free slots, and seconds until one is free for a newcomer."""
        self._leave(now_us)
        free = self._slots - len(self._ends_us)
        if free > 0:
            return free, 0.0
        # With k in line before the newcomer, it starts when the (k+1)th of those inside and in line has left.
        start = heapq.nsmallest(len(self._ends_us) - self._slots + 1, self._ends_us)[-1]
        return 0, (start - now_us) / 1e6

    def enter(self, now_us: int, residence_seconds: float) -> float:
        """Take a slot, in line if none is free; returns the seconds waited."""
        _, wait = self.state(now_us)
        heapq.heappush(self._ends_us, now_us + round((wait + residence_seconds) * 1e6))
        return wait

    def _leave(self, now_us: int) -> None:
        while self._ends_us and self._ends_us[0] <= now_us:
            heapq.heappop(self._ends_us)


class SlotChanges:
    """By how many slots an engine is busier or freer than the log says, because requests moved to it or away."""

    def __init__(self) -> None:
        self._ends_us: dict[str, tuple[list[int], list[int]]] = {}

    def move(self, logged: LoggedRequest, to: str, residence_seconds: float) -> None:
        now, limited = logged.served.at_us, logged.facts.backend_state
        if logged.model in limited:  # models that report no slots have none to run out of
            heapq.heappush(self._heaps(logged.model)[0], now + round(logged.total_seconds * 1e6))
        if to in limited:
            heapq.heappush(self._heaps(to)[1], now + round(residence_seconds * 1e6))

    def freed(self, model: str, now_us: int) -> int:
        """More free slots than logged; negative when fewer."""
        heaps = self._ends_us.get(model)
        if heaps is None:
            return 0
        for heap in heaps:
            while heap and heap[0] <= now_us:
                heapq.heappop(heap)
        return len(heaps[0]) - len(heaps[1])

    def _heaps(self, model: str) -> tuple[list[int], list[int]]:
        return self._ends_us.setdefault(model, ([], []))


class World:
    """Everything the replay has changed so far; `facts_for` is the logged facts as this world would have seen them."""

    def __init__(self, caches: Mapping[str, CacheRules], engines: Mapping[str, int]) -> None:
        self.caches = PrefixCaches(caches)
        self.engines = {model: EngineSlots(slots) for model, slots in engines.items()}
        self.changes = SlotChanges()

    def facts_for(self, logged: LoggedRequest) -> Facts:
        """The very same object while nothing differs."""
        facts = logged.request.facts
        changed = self._changed_states(facts.backend_state, logged.served.at_us)
        if self.caches.has_diverged(logged):
            warm = self.caches.warm_by_model(logged)
            return msgspec.structs.replace(facts, warm_tokens=warm, backend_state={**facts.backend_state, **changed})
        return msgspec.structs.replace(facts, backend_state={**facts.backend_state, **changed}) if changed else facts

    def _changed_states(self, state: Mapping[str, tuple[int, float]], now: int) -> dict[str, tuple[int, float]]:
        changed = {model: engine.state(now) for model, engine in self.engines.items()}
        for model, (free, wait) in state.items():
            freed = self.changes.freed(model, now) if model not in changed and free >= 0 else 0
            if freed:
                changed[model] = (max(0, free + freed), wait if free + freed <= 0 else 0.0)
        return changed
