"""What this process knows about its upstreams: breakers, retry budget, requests in flight, and the engine's slots."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backends.errors import (
    BackendError,
    NoFilesLeft,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
)
from backends.protocol import BackendHealth
from gateway.routing.circuit_breaker import CircuitBreaker, RetryBudget
from gateway.routing.first_token_times import FirstTokenTimes
from gateway.routing.snapshot import DOWN_SLOTS, LOADING_SLOTS, PAUSED_SLOTS, REFUSED_SLOTS, Candidate
from gateway.upstreams.generation_speeds import GenerationSpeeds
from gateway.upstreams.starting import Starting

DOWN, LOADING, REFUSED, PAUSED = (DOWN_SLOTS, 0.0), (LOADING_SLOTS, 0.0), (REFUSED_SLOTS, 0.0), (PAUSED_SLOTS, 0.0)
"""States of a model whose backend accepts no calls (see Facts.backend_state)."""
PAUSE_AFTER_AUTH_SECONDS = 300.0
"""How long a key rests after the provider refused it."""
SERVER_ERROR = 500
"""What servers answer to requests at which they break: a template, a grammar or a picture that they cannot read."""
NO_KEYS = ("",)


class KeyShelf(Protocol):
    """The choice among a backend's several keys."""

    def labels(self) -> Sequence[str]:
        """Every key."""
        ...

    def labels_by_room(self) -> Sequence[str]:
        """Keys usable now, the one with the most room first; if all are full, the one that will be free soonest."""
        ...

    def wait_seconds(self) -> float:
        """Seconds until some key has room; 0 if one has."""
        ...


@dataclass(slots=True)
class Upstreams:
    """One breaker per (backend, upstream model) and key; slots only if a backend reports them.

    `shelves` are the backends with several keys; all others use the key "". `starting` are our own, not up yet.
    """

    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    breakers: dict[tuple[str, str], dict[str, CircuitBreaker]] = field(
        default_factory=dict[tuple[str, str], dict[str, CircuitBreaker]]
    )
    health: dict[str, BackendHealth] = field(default_factory=dict[str, BackendHealth])
    running: dict[str, int] = field(default_factory=dict[str, int])
    running_then: dict[str, int] = field(default_factory=dict[str, int])
    shelves: Mapping[str, KeyShelf] = field(default_factory=dict[str, KeyShelf])
    starting: Starting = field(default_factory=Starting)
    first_tokens: dict[tuple[str, str], FirstTokenTimes] = field(default_factory=dict[tuple[str, str], FirstTokenTimes])
    refused: dict[tuple[str, str], dict[str, int | None]] = field(
        default_factory=dict[tuple[str, str], dict[str, int | None]]
    )
    """By (backend, upstream model), the keys that the provider refused at their last try, with its status."""
    failed_lately: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Of `breakers`, those that may not be closed: there may be hundreds, and every request asks."""
    speeds: GenerationSpeeds = field(default_factory=GenerationSpeeds)
    jitter: Callable[[], float] = lambda: 0.5
    """Of the breakers' pauses."""

    def state(self, candidates: Iterable[Candidate], now: float) -> dict[str, tuple[int, float]]:
        """(free slots, queue seconds) of models that report them; hosted ones appear only when down, or when all of
        their keys are at their limit."""
        found: dict[str, tuple[int, float]] = {}
        loading = self.starting.backends
        if not (loading or self.health or self.shelves or self.failed_lately):
            return found
        concerned = {*loading, *self.health, *self.shelves, *self._with_open_breakers()}
        for candidate in candidates:
            backend = candidate.backend
            if backend not in concerned:  # nearly all of what may be hundreds
                continue
            known = self.breakers.get((backend, candidate.upstream_model))
            if backend in loading:
                found[candidate.name] = LOADING
            elif known and self._is_down(candidate, known, now):
                found[candidate.name] = self._why_down(candidate, known)
            elif (health := self.health.get(backend)) is not None:
                if not health.is_healthy:
                    found[candidate.name] = DOWN
                elif health.free_slots is not None:
                    found[candidate.name] = (self._free_slots(backend, health), health.queue_seconds or 0.0)
            elif (shelf := self.shelves.get(backend)) is not None and (wait := shelf.wait_seconds()):
                found[candidate.name] = (0, round(wait, 3))
        return found

    def _with_open_breakers(self) -> set[str]:
        """Backends."""
        found: set[str] = set()
        for upstream in tuple(self.failed_lately):
            if any(breaker.state != "closed" for breaker in self.breakers.get(upstream, {}).values()):
                found.add(upstream[0])
            else:
                self.failed_lately.discard(upstream)
        return found

    def note_health(self, backend: str, health: BackendHealth) -> None:
        """Stores a backend's report, and how many of the requests in it are ours."""
        self.health[backend] = health
        if health.is_healthy:
            self.starting.came_up(backend)
        self.running_then[backend] = self.running.get(backend, 0)

    def slots(self, backend: str) -> int | None:
        """Total slots of a backend, busy ones included; None if it does not report them."""
        health = self.health.get(backend)
        if health is None or health.free_slots is None or health.running_requests is None:
            return None
        return health.free_slots + health.running_requests

    def _free_slots(self, backend: str, health: BackendHealth) -> int:
        """The reported free slots, corrected by what this process has started and finished since.

        Never more than what remains beside our own calls: a call just sent may be missing from the report.
        """
        ours = self.running.get(backend, 0)
        reported = health.free_slots or 0
        capacity = reported + (health.running_requests or 0)
        return max(0, min(reported + self.running_then.get(backend, 0), capacity) - ours)

    def _is_down(self, candidate: Candidate, known: Mapping[str, CircuitBreaker], now: float) -> bool:
        """Whether every key's breaker holds calls back."""
        for breaker in known.values():  # nearly always one, and closed
            if breaker.state != "closed":
                break
        else:
            return False
        return all(key in known and known[key].is_open(now) for key in self._keys(candidate))

    def _why_down(self, candidate: Candidate, known: Mapping[str, CircuitBreaker]) -> tuple[int, float]:
        refused = self.refused.get((candidate.backend, candidate.upstream_model), {})
        taken = [key for key in self._keys(candidate) if key not in refused]
        if not taken:
            return REFUSED
        return PAUSED if any(known[key].was_asked for key in taken) else DOWN

    def wait_seconds(self, candidates: Iterable[Candidate], now: float) -> float | None:
        """Seconds until the first of them may be called again; None if no breaker says."""
        waits = [
            min(breaker.wait_seconds(now) for breaker in known.values())
            for candidate in candidates
            if (known := self.breakers.get((candidate.backend, candidate.upstream_model)))
        ]
        return min(waits, default=None)

    def cut_short(self, candidates: Iterable[Candidate], now: float) -> bool:
        """A caller has nobody but these: for its sake they rest no longer than they must. Whether one has."""
        return any(
            breaker.cut_short(now)
            for candidate in candidates
            for breaker in self.breakers.get((candidate.backend, candidate.upstream_model), {}).values()
        )

    def warnings(self, now: float) -> list[str]:
        """Which of our keys are refused, in sentences that name no key."""
        return [
            f"{backend} refuses our key for {model} (it answered {status}); see its console; the next call tries it"
            + (f" in {wait:.0f} s" if (wait := self._breaker_of(backend, model, key).wait_seconds(now)) else "")
            for (backend, model), keys in sorted(self.refused.items())
            for key, status in keys.items()
        ]

    def failing(self, candidates: Iterable[Candidate], now: float) -> list[str]:
        """Models whose calls have failed with every key since their last answer, in sentences. Excludes those that
        asked us to wait, and those still loading."""
        found: dict[tuple[str, str], CircuitBreaker] = {}
        for candidate in candidates:
            breakers = self._breakers_of_keys_taken(candidate)
            if breakers and all(one is not None and one.state != "closed" and not one.was_asked for one in breakers):
                soonest = min((one for one in breakers if one is not None), key=lambda one: one.wait_seconds(now))
                found[candidate.backend, candidate.upstream_model] = soonest
        return [
            f"{backend} fails for {model}, {one.failures} times in a row; its status page or `breakeven doctor --ask` "
            "says more; the next call tries it" + (f" in {wait:.0f} s" if (wait := one.wait_seconds(now)) else "")
            for (backend, model), one in sorted(found.items(), key=lambda item: item[0])
            if backend not in self.starting.backends
        ]

    def _breakers_of_keys_taken(self, candidate: Candidate) -> list[CircuitBreaker | None]:
        """For keys that the provider does not refuse; None for one not tried yet."""
        upstream = (candidate.backend, candidate.upstream_model)
        known, refused = self.breakers.get(upstream, {}), self.refused.get(upstream, {})
        return [known.get(key) for key in self._keys(candidate) if key not in refused]

    def pick_key(self, candidate: Candidate, at: float, refused: Collection[str]) -> str | None:
        """A key for a call at `at`; None if all are refused or resting. Claims no probe: `started` does."""
        shelf = self.shelves.get(candidate.backend)
        known = self.breakers.get((candidate.backend, candidate.upstream_model), {})
        for key in NO_KEYS if shelf is None else shelf.labels_by_room():
            if key not in refused and not (key in known and known[key].is_open(at)):
                return key
        return None

    def started(self, candidate: Candidate, key: str, now: float) -> None:
        """A call goes out; `ended` must follow. An open breaker whose time has come takes it as its probe."""
        self.running[candidate.backend] = self.running.get(candidate.backend, 0) + 1
        self._breaker(candidate, key).allows(now)

    def ended(self, candidate: Candidate) -> None:
        """A call is over, however it went."""
        self.running[candidate.backend] -= 1

    def called_off(self, candidate: Candidate, key: str, now: float) -> None:
        """We gave up a call before it revealed anything about the upstream."""
        self._breaker(candidate, key).call_off(now)

    def answered(
        self,
        candidate: Candidate,
        key: str,
        now: float,
        *,
        tenant: str = "",
        first_token_seconds: float | None = None,
    ) -> None:
        """A first chunk came; for streams, with the time it took."""
        self._breaker(candidate, key).record_success(now, tenant)
        if self.refused:
            self._forgive(candidate, key)
        if first_token_seconds is not None:
            model = (candidate.backend, candidate.upstream_model)
            if (times := self.first_tokens.get(model)) is None:  # `setdefault` would make one for each call
                times = self.first_tokens[model] = FirstTokenTimes()
            times.record(now, first_token_seconds)

    def failed(self, candidate: Candidate, key: str, error: BackendError, now: float, *, tenant: str = "") -> None:
        """A call failed. Errors that are the caller's fault show that the upstream is alive; a 500 or an unreadable
        answer may be."""
        breaker = self._breaker(candidate, key)
        self.failed_lately.add((candidate.backend, candidate.upstream_model))
        if self.refused and error.status is not None:
            self._forgive(candidate, key)
        if isinstance(error, (Untranslatable, NoFilesLeft)):
            breaker.call_off(now)  # nothing was sent
        elif isinstance(error, UpstreamRejected) and not isinstance(error, StreamBroken):
            breaker.record_success(now, tenant)
        elif isinstance(error, RateLimited) and error.status is None:
            breaker.call_off(now)  # our own limit of a key: nothing was sent
        elif isinstance(error, UpstreamAuth):
            breaker.record_refusal(now, PAUSE_AFTER_AUTH_SECONDS)
            self.refused.setdefault((candidate.backend, candidate.upstream_model), {})[key] = error.status
        elif isinstance(error, RateLimited) and error.retry_after_seconds is not None:
            breaker.record_refusal(now, error.retry_after_seconds)
        else:
            is_about_request = error.status == SERVER_ERROR or isinstance(error, UnreadableAnswer)
            breaker.record_failure(now, tenant, is_about_request=is_about_request)

    def late_seconds(self, candidate: Candidate, now: float) -> float | None:
        """The time after which this model's first token counts as late; None with too few samples."""
        times = self.first_tokens.get((candidate.backend, candidate.upstream_model))
        return None if times is None else times.late_seconds(now)

    def request_came(self) -> None:
        """Every request earns a fraction of a retry."""
        self.retry_budget.earn()

    def may_retry(self) -> bool:
        """Takes a retry from the budget."""
        return self.retry_budget.spend()

    def _keys(self, candidate: Candidate) -> Sequence[str]:
        shelf = self.shelves.get(candidate.backend)
        return NO_KEYS if shelf is None else shelf.labels()

    def _forgive(self, candidate: Candidate, key: str) -> None:
        """The provider accepted the key, whatever it answered."""
        self.refused.get((candidate.backend, candidate.upstream_model), {}).pop(key, None)

    def _breaker(self, candidate: Candidate, key: str) -> CircuitBreaker:
        return self._breaker_of(candidate.backend, candidate.upstream_model, key)

    def _breaker_of(self, backend: str, upstream_model: str, key: str) -> CircuitBreaker:
        upstream = (backend, upstream_model)
        by_key = self.breakers.get(upstream)
        if by_key is None:
            by_key = self.breakers[upstream] = {}
        breaker = by_key.get(key)
        if breaker is None:
            breaker = by_key[key] = CircuitBreaker(jitter=self.jitter)
        return breaker
