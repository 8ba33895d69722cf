"""Virtual keys in memory: who a bearer token belongs to. Filled from the key store; no IO on a request's path."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.errors import Forbidden, Unauthenticated

Role = Literal["app", "lead", "viewer", "finance", "editor", "owner"]
"""`app` calls models and nothing else, a `lead` reads what its own team spends; the others read or change more and more
of `/admin/v1`."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """One key without its secret. Times are microseconds since the epoch."""

    id: str
    name: str
    role: Role
    team: str | None = None
    project: str | None = None
    tags: tuple[str, ...] = ()
    allowed_models: frozenset[str] | None = None
    expires_at_us: int | None = None
    revoked_at_us: int | None = None
    keeps_bodies: bool = False  # its prompts and answers are stored, sealed


def hash_key(pepper: bytes, key: str) -> bytes:
    """HMAC-SHA256 of a key under the deployment's pepper: what is stored."""
    return hmac.digest(pepper, key.encode("utf-8", "surrogateescape"), hashlib.sha256)


class KeyRing:
    """All keys by hash. Looking up a 256-bit hash compares no secret, so there is nothing to time."""

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper
        # Keyed once, copied per request: the one-shot call lets other threads in, which costs more than the hash.
        self._keyed = hmac.new(pepper, digestmod=hashlib.sha256)
        self._records: Mapping[bytes, KeyRecord] = {}

    def cache_salt(self, tenant: str) -> str:
        """What separates a tenant's prompt cache from all others': nobody outside can compute or choose it."""
        return hmac.digest(self._pepper, b"cache salt\0" + tenant.encode(), hashlib.sha256).hex()[:32]

    def response_secret(self, team: str) -> bytes:
        """64 bytes under which a team's names of kept responses are made: nobody else's name means anything to it."""
        return hmac.digest(self._pepper, b"response names\0" + team.encode(), hashlib.sha512)

    def replace(self, records: Mapping[bytes, KeyRecord]) -> None:
        """Take over a fresh copy of the store; atomic for everyone who asks."""
        self._records = records

    def authenticate(self, credential: str | None, now_us: int) -> KeyRecord:
        """The key behind an `Authorization: Bearer` or `x-api-key` value. Raises Unauthenticated, saying what to do."""
        if not credential:
            raise Unauthenticated(
                "No API key was given. Send 'Authorization: Bearer YOUR_KEY'; `breakeven keys create` makes one."
            )
        token = credential.removeprefix("Bearer ").removeprefix("bearer ").strip()
        record = self._records.get(self._hashed(token))
        if record is None:
            raise Unauthenticated("This API key is not known here. Check it, or make one: `breakeven keys create`.")
        if record.revoked_at_us is not None:  # whatever the clock here says: it may be behind, or be put back
            raise Unauthenticated(f"The API key {record.name!r} was revoked.")
        if record.expires_at_us is not None and record.expires_at_us <= now_us:
            raise Unauthenticated(f"The API key {record.name!r} has expired.")
        return record

    def _hashed(self, token: str) -> bytes:
        """As `hash_key`."""
        keyed = self._keyed.copy()
        keyed.update(token.encode("utf-8", "surrogateescape"))
        return keyed.digest()


def require_model_access(key: KeyRecord) -> None:
    """Leads, viewers and finance read the books; only apps, editors and owners spend money."""
    if key.role in ("lead", "viewer", "finance"):
        raise Forbidden(f"The key {key.name!r} has the role {key.role!r}, which may read but not call models.")
