"""What to try next when an attempt fails, or stays silent, before its first output: one generator, driven by
whoever makes the calls.

    policy = fallback_policy(order, ...)
    attempt = next(policy)            # the first try
    attempt = policy.send(error)      # what to try after that error; StopIteration: give up
    attempt = policy.send(LATE)       # what to try beside or instead of a silent attempt; None: go on waiting

It reads no clock and does no IO: the driver waits, and the jitter is passed in.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from backends.errors import BackendError, RateLimited, Untranslatable, UpstreamAuth, UpstreamUnavailable
from gateway.routing.snapshot import Candidate

Silence = Enum("Silence", "LATE")
LATE: Final = Silence.LATE
"""An attempt was silent for its `patience_seconds`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` counts the first one. Waits are in seconds; a Retry-After above `longest_wait_seconds` is passed
    on to the caller instead of being waited for.

    `first_token_seconds` is how long a stream may be silent before another model is tried, unless the rule says.
    With `is_hedging` a second model is asked when the first is later than its recent 95th percentile."""

    max_attempts: int = 4
    attempts_per_model: int = 2
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0
    first_token_seconds: float | None = None
    is_hedging: bool = False


class Try(msgspec.Struct, frozen=True):
    """One attempt to make after waiting, with that `key` of its backend. `overtakes`: give up the silent ones."""

    number: int
    candidate: Candidate
    wait_seconds: float
    key: str = ""
    patience_seconds: float | None = None
    overtakes: bool = False


Found = tuple[Candidate, float, str]


class _Tried(msgspec.Struct):
    """What this request knows about one model."""

    times: int = 0
    asked_to_wait_seconds: float = 0.0
    refused_keys: set[str] = set()


class _Search(msgspec.Struct):
    """Finds the next attempt: a candidate, the seconds to wait first, and the key to use."""

    order: Sequence[Candidate]
    policy: RetryPolicy
    pick_key: Callable[[Candidate, float, Collection[str]], str | None]
    jitter: Callable[[], float]
    tried: dict[str, _Tried]

    def untried(self) -> Found | None:
        for candidate in self.order:
            if not self.tried[candidate.name].times and (key := self.pick_key(candidate, 0.0, ())) is not None:
                return candidate, 0.0, key
        return None

    def other_key(self, candidate: Candidate) -> Found | None:
        """A 429 or 401 concerns the key: the same model may answer another key at once."""
        key = self.pick_key(candidate, 0.0, self.tried[candidate.name].refused_keys)
        return None if key is None else (candidate, 0.0, key)

    def after(self, error: BackendError, candidate: Candidate, key: str) -> Found | None:
        known = self.tried[candidate.name]
        if isinstance(error, Untranslatable):  # this model will never be able to express the request
            known.times = self.policy.attempts_per_model
        if isinstance(error, (RateLimited, UpstreamUnavailable)) and error.retry_after_seconds is not None:
            known.asked_to_wait_seconds = error.retry_after_seconds
        if isinstance(error, (RateLimited, UpstreamAuth)):
            known.refused_keys.add(key)
            if (found := self.other_key(candidate)) is not None:
                known.times -= 1
                return found
        return self.untried() or self.again()

    def again(self) -> Found | None:
        """The same models once more, after their Retry-After or an exponential wait."""
        for round_number in range(1, self.policy.attempts_per_model):
            for candidate in self.order:
                known = self.tried[candidate.name]
                if known.times != round_number:
                    continue
                backoff = self.policy.first_wait_seconds * 2 ** (round_number - 1) * (0.5 + self.jitter())
                wait = max(known.asked_to_wait_seconds, backoff)
                if wait > self.policy.longest_wait_seconds:
                    continue
                key = self.pick_key(candidate, wait, ())
                if key is not None:
                    return candidate, wait, key
        return None


def fallback_policy(
    order: Sequence[Candidate],
    policy: RetryPolicy,
    *,
    pick_key: Callable[[Candidate, float, Collection[str]], str | None],
    may_retry: Callable[[], bool],
    jitter: Callable[[], float],
    first_token_seconds: float | None = None,
    hedge_seconds: Callable[[Candidate], float | None] = lambda _: None,
) -> Generator[Try | None, BackendError | Silence]:
    """Yield attempts in order of preference. `pick_key(candidate, wait, refused)` asks the circuit breakers for a key
    usable after that wait and not among the refused ones; `jitter` draws from [0, 1).

    After a refused key another key of the same model is tried; otherwise another model before the same one again, which
    is retried, after a wait, only when no other is left. A non-retryable error ends it. A model that cannot express the
    request does not count: it is asked once, and asking the next model is no retry.
    """
    search = _Search(order, policy, pick_key, jitter, defaultdict(_Tried))
    number, unsaid, overtakes = 0, 0, False
    found = search.untried()
    while found is not None:
        candidate, wait, key = found
        number += 1
        search.tried[candidate.name].times += 1
        hedge = hedge_seconds(candidate) if number == 1 else None
        is_hedged = hedge is not None and (first_token_seconds is None or hedge < first_token_seconds)
        patience = hedge if is_hedged else first_token_seconds
        news = yield Try(number, candidate, wait, key, patience, overtakes)
        overtakes = news is LATE and not is_hedged
        found = None
        while found is None:
            if not isinstance(news, Silence) and not news.is_retryable:
                return
            is_unsaid = isinstance(news, Untranslatable)
            unsaid += is_unsaid
            if number - unsaid < policy.max_attempts:
                found = search.untried() if isinstance(news, Silence) else search.after(news, candidate, key)
            is_retry = found is not None and (not is_unsaid or search.tried[found[0].name].times > 0)
            if is_retry and not may_retry():
                found = None
            if found is None:
                if not isinstance(news, Silence):
                    return
                news, overtakes = (yield None), False
