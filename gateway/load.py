"""What this process knows of its upstreams: breakers, retry budget, requests in flight, and the engine's slots."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from backends.errors import BackendError, StreamBroken, UpstreamRejected
from backends.protocol import BackendHealth
from gateway.routing.circuit_breaker import CircuitBreaker, RetryBudget
from gateway.routing.snapshot import Candidate

DOWN = (-1, 0.0)
"""The state of a model whose backend takes no calls now (see Facts.backend_state)."""


@dataclass(slots=True)
class Upstreams:
    """One breaker per (backend, upstream model); slots only where a backend reports them."""

    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    breakers: dict[tuple[str, str], CircuitBreaker] = field(default_factory=dict[tuple[str, str], CircuitBreaker])
    health: dict[str, BackendHealth] = field(default_factory=dict[str, BackendHealth])
    running: dict[str, int] = field(default_factory=dict[str, int])

    def state(self, candidates: Iterable[Candidate], now: float) -> dict[str, tuple[int, float]]:
        """(free slots, queue seconds) of each model that has something to say; hosted ones only when they are down."""
        found: dict[str, tuple[int, float]] = {}
        for candidate in candidates:
            breaker = self.breakers.get((candidate.backend, candidate.upstream_model))
            if breaker is not None and breaker.is_open(now):
                found[candidate.name] = DOWN
            elif (health := self.health.get(candidate.backend)) is not None:
                if not health.is_healthy:
                    found[candidate.name] = DOWN
                elif health.free_slots is not None:
                    found[candidate.name] = (self._free_slots(candidate.backend, health), health.queue_seconds or 0.0)
        return found

    def _free_slots(self, backend: str, health: BackendHealth) -> int:
        """What the engine reported, less what this process sent since: a report is up to a second old."""
        reported = health.free_slots or 0
        capacity = reported + (health.running_requests or 0)
        return max(0, min(reported, capacity - self.running.get(backend, 0)))

    def started(self, candidate: Candidate) -> None:
        """A call goes out; `ended` must follow."""
        self.running[candidate.backend] = self.running.get(candidate.backend, 0) + 1

    def ended(self, candidate: Candidate) -> None:
        """A call is over, however it went."""
        self.running[candidate.backend] -= 1

    def allows(self, candidate: Candidate, now: float) -> bool:
        """Whether the breaker lets a call through now."""
        return self._breaker(candidate).allows(now)

    def answered(self, candidate: Candidate) -> None:
        """A first chunk came."""
        self._breaker(candidate).record_success()

    def failed(self, candidate: Candidate, error: BackendError, now: float) -> None:
        """A call failed; what was the caller's own fault does not count against the upstream."""
        if not isinstance(error, UpstreamRejected) or isinstance(error, StreamBroken):
            self._breaker(candidate).record_failure(now)

    def request_came(self) -> None:
        """Every request earns a share of a retry."""
        self.retry_budget.earn()

    def may_retry(self) -> bool:
        """Take a retry from the budget."""
        return self.retry_budget.spend()

    def _breaker(self, candidate: Candidate) -> CircuitBreaker:
        return self.breakers.setdefault((candidate.backend, candidate.upstream_model), CircuitBreaker())
