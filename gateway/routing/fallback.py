"""What to try next when an attempt fails before its first chunk: one generator, driven by whoever does the calling.

    policy = fallback_policy(order, ...)
    attempt = next(policy)            # the first try
    attempt = policy.send(error)      # what to try after that error; StopIteration: give up

It reads no clock and does no IO: waiting is the driver's, the jitter is passed in.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from backends.errors import BackendError, RateLimited, UpstreamUnavailable
from gateway.routing.snapshot import Candidate


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` counts the first one. Waits are seconds; a longer Retry-After than `longest_wait_seconds` is not
    waited for: the caller is told to come back instead."""

    max_attempts: int = 4
    attempts_per_model: int = 2
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to make, after waiting."""

    number: int
    candidate: Candidate
    wait_seconds: float


def fallback_policy(
    order: Sequence[Candidate],
    policy: RetryPolicy,
    *,
    allows: Callable[[Candidate], bool],
    may_retry: Callable[[], bool],
    jitter: Callable[[], float],
) -> Generator[Try, BackendError]:
    """Yield attempts in order of preference. `allows` is the circuit breaker, `jitter` draws from [0, 1).

    Another model is tried before the same one again; the same one is tried again, after its Retry-After or an
    exponential wait, only when no other is left. An error that no retry can cure ends it.
    """
    tried: dict[str, int] = {}
    asked_to_wait: dict[str, float] = {}
    number = 0
    while number < policy.max_attempts:
        candidate = _next_candidate(order, tried, policy, allows)
        if candidate is None:
            return
        before = tried.get(candidate.name, 0)
        wait = 0.0
        if before:
            backoff = policy.first_wait_seconds * 2 ** (before - 1) * (0.5 + jitter())
            wait = max(asked_to_wait.get(candidate.name, 0.0), backoff)
            if wait > policy.longest_wait_seconds:
                return
        if number and not may_retry():
            return
        number += 1
        tried[candidate.name] = before + 1
        error = yield Try(number, candidate, wait)
        if not error.is_retryable:
            return
        if isinstance(error, (RateLimited, UpstreamUnavailable)) and error.retry_after_seconds is not None:
            asked_to_wait[candidate.name] = error.retry_after_seconds


def _next_candidate(
    order: Sequence[Candidate], tried: dict[str, int], policy: RetryPolicy, allows: Callable[[Candidate], bool]
) -> Candidate | None:
    for round_number in range(policy.attempts_per_model):
        for candidate in order:
            if tried.get(candidate.name, 0) == round_number and allows(candidate):
                return candidate
    return None
