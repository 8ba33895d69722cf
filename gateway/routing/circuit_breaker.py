"""A circuit breaker per upstream and key, as a table. The clock and the jitter are passed in.

state      failure                    refusal               success  called off       time passes
closed     count; at the limit: open  open for what it said count=0  -                -
open       -                          open for what it said closed   -                at `probe_at`: half_open
half_open  open, cool-down doubled    open for what it said closed   open, probe now  -

Failures in a row of one tenant's requests that may be about these (`is_about_request`) open nothing while others are
answered: a request at which the upstream breaks would otherwise close it to everybody.
A refusal is the upstream asking for a pause (Retry-After) or refusing our key: one is enough. A cool-down of other
reasons is cut short for a caller whom nobody else could answer: it would be refused, so a probe costs it nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

State = Literal["closed", "open", "half_open"]
OTHERS_SECONDS = 30.0
"""An answer to another tenant is no older than that while others are answered."""
PROBE_SECONDS = 1.0
"""How long a probe usually takes to show whether its upstream has recovered."""
SOLE_COOL_DOWN_SECONDS = 5.0
"""The longest cool-down of an upstream that is the only one left."""


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after `failure_limit` failures in a row; lets one probe through when the cool-down is over.

    `jitter` draws from [0, 1) and makes a cool-down up to a quarter shorter or longer. Without it the probes of all
    workers meet an upstream that fails every few seconds always in the same moment.
    """

    failure_limit: int = 5
    first_cool_down_seconds: float = 2.0
    longest_cool_down_seconds: float = 60.0
    jitter: Callable[[], float] = lambda: 0.5
    state: State = "closed"
    failures: int = 0
    probe_at: float = 0.0
    sole_probe_at: float = 0.0
    cool_down_seconds: float = field(default=0.0)
    was_asked: bool = False
    """Whether it opened because the upstream asked for a pause, not because calls failed."""
    suspect: str | None = None
    """The tenant whose requests may have caused all failures in a row; None if there is none."""
    answered: tuple[tuple[str, float], ...] = ()
    """When the last two tenants got an answer, the latest first."""

    def allows(self, now: float) -> bool:
        """Whether a call may go out. If this turns the breaker half-open, that call is the probe."""
        if self.state == "closed":
            return True
        if now < self.probe_at:
            return False
        self.state = "half_open"
        self.probe_at = now + self.longest_cool_down_seconds  # a probe that never reports back is replaced then
        return True

    def is_open(self, now: float) -> bool:
        """Whether calls are held back at `now`; unlike `allows` this claims no probe."""
        return self.state != "closed" and now < self.probe_at

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next call may go out; while a probe is out, the time it may take."""
        if self.state == "half_open":
            return min(PROBE_SECONDS, max(0.0, self.probe_at - now))
        return max(0.0, self.probe_at - now) if self.state != "closed" else 0.0

    def record_success(self, now: float = 0.0, tenant: str = "") -> None:
        """A call succeeded: resets everything."""
        self.state, self.failures, self.cool_down_seconds, self.was_asked = "closed", 0, 0.0, False
        others = [one for one in self.answered if one[0] != tenant]
        self.answered = ((tenant, now), *others[:1])

    def record_failure(self, now: float, tenant: str = "", *, is_about_request: bool = False) -> None:
        """A call failed for a reason on the upstream's side, or perhaps because of what was asked."""
        self.suspect = tenant if is_about_request and (not self.failures or tenant == self.suspect) else None
        self.failures += 1
        if self.state == "closed" and self.suspect is not None and self._answers_others(now, tenant):
            return
        if self.state == "half_open" or (self.state == "closed" and self.failures >= self.failure_limit):
            doubled = self.cool_down_seconds * 2 or self.first_cool_down_seconds
            self.cool_down_seconds = min(doubled, self.longest_cool_down_seconds)
            stretch = 0.75 + 0.5 * self.jitter()
            self.state, self.probe_at, self.was_asked = "open", now + self.cool_down_seconds * stretch, False
            self.sole_probe_at = now + min(self.cool_down_seconds, SOLE_COOL_DOWN_SECONDS) * stretch

    def _answers_others(self, now: float, tenant: str) -> bool:
        return any(name != tenant and now - at <= OTHERS_SECONDS for name, at in self.answered)

    def record_refusal(self, now: float, pause_seconds: float) -> None:
        """The upstream asked for a pause."""
        later = self.probe_at if self.state == "open" else now
        self.state, self.probe_at, self.was_asked = "open", max(later, now + pause_seconds), True

    def cut_short(self, now: float) -> bool:
        """A caller has nobody else to ask. Whether a call may go out now that could not before."""
        if self.state != "open" or self.was_asked or now >= self.probe_at:
            return False
        self.probe_at = min(self.probe_at, self.sole_probe_at)
        return now >= self.probe_at

    def call_off(self, now: float) -> None:
        """We gave up a call: if it was the probe, the next call may probe at once."""
        if self.state == "half_open":
            self.state, self.probe_at = "open", now


@dataclass(slots=True)
class RetryBudget:
    """Bounds retries to a small share of requests, so that an outage is not amplified.

    Each request earns `ratio` of a retry, saved up to `burst`; total attempts stay within (1 + ratio) × requests plus
    the initial savings. Calls in progress fail together when their upstream does, and each should reach the next model:
    `burst` is about the number of such calls.
    """

    ratio: float = 0.2
    burst: float = 1000.0
    saved: float = 100.0

    def earn(self) -> None:
        """A request came."""
        saved = self.saved + self.ratio
        self.saved = saved if saved < self.burst else self.burst

    def spend(self) -> bool:
        """Take one retry if there is one."""
        if self.saved < 1.0:
            return False
        self.saved -= 1.0
        return True
