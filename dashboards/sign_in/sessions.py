"""Who is signed in: sessions named by a random cookie. The API key never reaches the browser."""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

IDLE_SECONDS = 8 * 3600
LONGEST_SECONDS = 24 * 3600
NOTE_SECONDS = 60
MAX_SESSIONS = 10_000
FREE_FAILURES = 5
FORGET_SECONDS = 900.0
LONGEST_LOCK_SECONDS = 300.0
MAX_ADDRESSES = 10_000


@dataclass(slots=True)
class Session:
    """One signed-in browser."""

    key: str = field(repr=False)
    name: str
    role: str
    permissions: frozenset[str]
    csrf: str
    started_at: float
    seen_at: float
    key_id: str | None = None
    """Id of a key that was created for this session only, and is revoked at sign-out."""
    is_over: bool = False

    def may(self, *permissions: str) -> bool:
        """Whether the session has any of these permissions."""
        return not self.permissions.isdisjoint(permissions)


class Shelf(Protocol):
    """Storage in which sessions survive a restart of this process."""

    def save(self, secret: str, session: Session) -> None: ...

    def load(self, secret: str) -> Session | None: ...

    def touch(self, secret: str, seen_at: float) -> None: ...

    def remove(self, secret: str) -> None: ...


class Sessions:
    """At `most` this many sessions. With a shelf, `now` must be the wall clock: stored times outlive a restart."""

    def __init__(self, now: Callable[[], float], shelf: Shelf | None = None, *, most: int = MAX_SESSIONS) -> None:
        self._now = now
        self._shelf = shelf
        self._most = most
        self._by_hash: dict[bytes, Session] = {}

    def start(
        self, key: str, name: str, role: str, permissions: frozenset[str], *, key_id: str | None = None
    ) -> tuple[str, Session]:
        """A new session and the secret for its cookie."""
        now = self._now()
        self._forget_old(now)
        secret = secrets.token_urlsafe(32)
        session = Session(key, name, role, permissions, secrets.token_urlsafe(32), now, now, key_id)
        self._by_hash[_digest(secret)] = session
        if self._shelf is not None:
            self._shelf.save(secret, session)
        return secret, session

    def find(self, secret: str | None) -> Session | None:
        """The session behind a cookie, if it is still good; this counts as its use."""
        session, now = self._known(secret), self._now()
        if not secret or session is None or self._is_old(session, now):
            return None
        if self._shelf is not None and now - session.seen_at > NOTE_SECONDS:
            self._shelf.touch(secret, now)
        session.seen_at = now
        return session

    def is_good(self, secret: str | None) -> bool:
        """Whether the session is valid. Does not count as use, because an open page asks by itself."""
        session = self._known(secret)
        return session is not None and not self._is_old(session, self._now())

    def end(self, secret: str | None) -> None:
        if not secret:
            return
        session = self._by_hash.pop(_digest(secret), None)
        if session is not None:
            session.is_over = True
        if self._shelf is not None:
            self._shelf.remove(secret)

    def _known(self, secret: str | None) -> Session | None:
        if not secret:
            return None
        session = self._by_hash.get(_digest(secret))
        if session is None and self._shelf is not None and (session := self._shelf.load(secret)) is not None:
            self._by_hash[_digest(secret)] = session
        return session

    def _is_old(self, session: Session, now: float) -> bool:
        """Also true if the clock was set back by that much: the session's age is then unknown."""
        idle, age = abs(now - session.seen_at), abs(now - session.started_at)
        return session.is_over or idle > IDLE_SECONDS or age > LONGEST_SECONDS

    def _forget_old(self, now: float) -> None:
        for name in [name for name, session in self._by_hash.items() if self._is_old(session, now)]:
            self._by_hash.pop(name).is_over = True
        while len(self._by_hash) >= self._most:
            oldest = min(self._by_hash, key=lambda name: self._by_hash[name].seen_at)
            self._by_hash.pop(oldest).is_over = True


class SignInLimit:
    """Slows down guessing: after five failures an address has to wait, each time twice as long. It remembers at `most`
    this many addresses, those that failed last."""

    def __init__(self, monotonic: Callable[[], float], *, most: int = MAX_ADDRESSES) -> None:
        self._monotonic = monotonic
        self._most = most
        self._failures: dict[str, tuple[int, float]] = {}

    def wait_seconds(self, address: str) -> float:
        """0 when a try is allowed now."""
        failures, last = self._failures.get(address, (0, 0.0))
        if failures < FREE_FAILURES:
            return 0.0
        lock = min(2.0 ** (failures - FREE_FAILURES + 1), LONGEST_LOCK_SECONDS)
        return max(0.0, last + lock - self._monotonic())

    def failed(self, address: str) -> None:
        now = self._monotonic()
        failures, last = self._failures.pop(address, (0, now))
        self._failures[address] = (1 if now - last > FORGET_SECONDS else failures + 1, now)  # newest last
        if len(self._failures) > self._most:
            del self._failures[next(iter(self._failures))]

    def withdrawn(self, address: str) -> None:
        """Takes one failure back, for an attempt that said nothing about the key."""
        failures, last = self._failures.pop(address, (0, 0.0))
        if failures > 1:
            self._failures[address] = (failures - 1, last)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)


def counted_as(address: str) -> str:
    """The address to count failures by; for IPv6 its /64 network, which usually belongs to one user as a whole."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class FormTokens:
    """CSRF tokens for the sign-in form: bound to a cookie of the same browser, signed by this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def token(self, nonce: str) -> str:
        return hmac.new(self._secret, nonce.encode(), hashlib.sha256).hexdigest()

    def is_good(self, nonce: str | None, token: str | None) -> bool:
        return bool(nonce and token) and is_same_secret(self.token(nonce or ""), token or "")


def is_same_secret(known: str, given: str) -> bool:
    """Constant-time comparison. The standard library compares only ASCII text, and raises for any other."""
    return hmac.compare_digest(known.encode(), given.encode("utf-8", "surrogatepass"))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
