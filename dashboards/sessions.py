"""Who is signed in: sessions kept in this process, named by a random cookie. The API key never reaches the browser."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

IDLE_SECONDS = 8 * 3600
LONGEST_SECONDS = 24 * 3600
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
    is_over: bool = False

    def may(self, permission: str) -> bool:
        return permission in self.permissions


class Sessions:
    """All of them. `monotonic` is passed in."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._by_hash: dict[bytes, Session] = {}

    def start(self, key: str, name: str, role: str, permissions: frozenset[str]) -> tuple[str, Session]:
        """A new session and the secret for its cookie."""
        now = self._monotonic()
        self._forget_old(now)
        secret = secrets.token_urlsafe(32)
        session = Session(key, name, role, permissions, secrets.token_urlsafe(32), now, now)
        self._by_hash[_digest(secret)] = session
        return secret, session

    def find(self, secret: str | None) -> Session | None:
        """The session behind a cookie, if it is still good."""
        session = self._by_hash.get(_digest(secret)) if secret else None
        if session is None or self._is_old(session, self._monotonic()):
            return None
        session.seen_at = self._monotonic()
        return session

    def end(self, secret: str | None) -> None:
        session = self._by_hash.pop(_digest(secret), None) if secret else None
        if session is not None:
            session.is_over = True

    def _is_old(self, session: Session, now: float) -> bool:
        return session.is_over or now - session.seen_at > IDLE_SECONDS or now - session.started_at > LONGEST_SECONDS

    def _forget_old(self, now: float) -> None:
        for name in [name for name, session in self._by_hash.items() if self._is_old(session, now)]:
            self._by_hash.pop(name).is_over = True
        while len(self._by_hash) >= MAX_SESSIONS:
            oldest = min(self._by_hash, key=lambda name: self._by_hash[name].seen_at)
            self._by_hash.pop(oldest).is_over = True


class SignInLimit:
    """Slows guessing: after five failures an address waits, each time twice as long."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
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
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures = {a: f for a, f in self._failures.items() if now - f[1] < FORGET_SECONDS}
        failures, last = self._failures.get(address, (0, now))
        self._failures[address] = (1 if now - last > FORGET_SECONDS else failures + 1, now)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)


class FormTokens:
    """CSRF tokens for the sign-in form: bound to a cookie of the same browser, signed by this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def token(self, nonce: str) -> str:
        return hmac.new(self._secret, nonce.encode(), hashlib.sha256).hexdigest()

    def is_good(self, nonce: str | None, token: str | None) -> bool:
        return bool(nonce and token) and hmac.compare_digest(self.token(nonce or ""), token or "")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
