"""Virtual keys in memory: finds whom a bearer token belongs to. Filled from the key store; no IO on the request
path."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gateway.clock import unstepped_seconds
from gateway.errors import Forbidden, KeyInDoubt, Unauthenticated
from gateway.instants import moment_of

DOUBT_SECONDS = 5.0
"""Retry-After of a KeyInDoubt."""
Role = Literal["app", "lead", "viewer", "finance", "editor", "owner"]
"""`app` only calls models; a `lead` reads its own team's spending; the others read or change increasingly more of
`/admin/v1`."""


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
    keeps_bodies: bool = False  # its prompts and answers are stored, encrypted


@dataclass(frozen=True, slots=True)
class ReplacedSecret:
    """A secret that was rotated out. `seconds_left` until its end, by the store's clock when it was read; 0 once
    withdrawn."""

    key_id: str
    replaced_at_us: int
    ends_at_us: int
    seconds_left: float
    is_withdrawn: bool


NONE_REPLACED: Mapping[bytes, ReplacedSecret] = MappingProxyType({})


def hash_key(pepper: bytes, key: str) -> bytes:
    """HMAC-SHA256 of a key under the deployment's pepper; this is what is stored."""
    return hmac.digest(pepper, key.encode("utf-8", "surrogateescape"), hashlib.sha256)


BEARER = "bearer "
LITELLM_PREFIX = "sk-"
"""Prefix of every key that LiteLLM's proxy accepts."""


def hash_litellm_digest(pepper: bytes, digest: bytes) -> bytes:
    """The stored hash of a key made by LiteLLM, which itself stores only the key's SHA-256 (`digest`).

    Keyed with a secret of its own, so that a digest copied from LiteLLM's database is no valid key here.
    """
    return hmac.digest(_litellm_secret(pepper), digest, hashlib.sha256)


def _litellm_secret(pepper: bytes) -> bytes:
    return hmac.digest(pepper, b"keys of litellm", hashlib.sha256)


class KeyRing:
    """All keys by hash. Looking up a 256-bit hash compares no secrets, so there is no timing side channel."""

    def __init__(self, pepper: bytes, unstepped: Callable[[], float] = unstepped_seconds) -> None:
        self._pepper = pepper
        self._unstepped = unstepped
        # Keyed once and copied per request: one-shot hmac.digest releases the GIL, which costs more than the hash
        # itself.
        self._keyed = hmac.new(pepper, digestmod=hashlib.sha256)
        self._keyed_for_litellm = hmac.new(_litellm_secret(pepper), digestmod=hashlib.sha256)
        self._has_litellms = False
        self._records: Mapping[bytes, KeyRecord] = {}
        self._replaced = NONE_REPLACED
        self._rotated: Mapping[str, KeyRecord] = {}
        self._deadlines: Mapping[bytes, float] = {}
        self._used: dict[bytes, float] = {}
        self._by_id: dict[str, KeyRecord] = {}
        self._in_doubt: Counter[str] = Counter()

    def cache_salt(self, tenant: str) -> str:
        """Isolates a tenant's prompt cache from all others: nobody outside can compute or choose it."""
        return hmac.digest(self._pepper, b"cache salt\0" + tenant.encode(), hashlib.sha256).hex()[:32]

    def response_secret(self, team: str) -> bytes:
        """64 bytes from which a team's response names are derived, so that names of other teams do not resolve."""
        return hmac.digest(self._pepper, b"response names\0" + team.encode(), hashlib.sha512)

    def conversation_secret(self, tenant: str) -> bytes:
        """32 bytes that encrypt a tenant's kept responses."""
        return hmac.digest(self._pepper, b"kept responses\0" + tenant.encode(), hashlib.sha256)

    def replace(
        self,
        records: Mapping[bytes, KeyRecord],
        replaced: Mapping[bytes, ReplacedSecret] = NONE_REPLACED,
        *,
        has_litellms: bool = False,
    ) -> None:
        """Take over a fresh copy of the store, atomically for readers. `has_litellms`: some keys came from LiteLLM."""
        now = self._unstepped()
        self._deadlines = {key_hash: self._deadline(key_hash, one, now) for key_hash, one in replaced.items()}
        ids = {one.key_id for one in replaced.values()}
        self._rotated = {one.id: one for one in records.values() if one.id in ids} if ids else {}
        self._replaced = replaced
        self._has_litellms = has_litellms
        self._records = records
        self._by_id = {}

    def _deadline(self, key_hash: bytes, one: ReplacedSecret, now: float) -> float:
        """On the unstepped clock, fixed when the deadline was first read, so that no clock change moves it."""
        known = self._replaced.get(key_hash)
        if known is not None and known.ends_at_us == one.ends_at_us and not one.is_withdrawn:
            return self._deadlines[key_hash]
        return now + one.seconds_left

    def working(self, now_us: int) -> Iterable[KeyRecord]:
        """Keys that are neither revoked nor expired."""
        return (one for one in self._records.values() if not (one.revoked_at_us or _has_expired(one, now_us)))

    def used(self) -> dict[bytes, float]:
        """Replaced secrets used since `forget_uses`, with the time of their last use."""
        return dict(self._used)  # atomic copy: administration authenticates in threads

    def seconds_ago(self, used: Mapping[bytes, float]) -> dict[bytes, float]:
        now = self._unstepped()
        return {key_hash: now - at for key_hash, at in used.items()}

    def forget_uses(self, noted: Mapping[bytes, float]) -> None:
        """Drops uses that have been noted, unless the secret was used again since."""
        for key_hash, at in noted.items():
            if self._used.get(key_hash) == at:
                self._used.pop(key_hash, None)

    def overdue(self) -> list[bytes]:
        """Replaced secrets already refused here because their time is over, but not yet withdrawn in the store."""
        now = self._unstepped()
        return [
            key_hash
            for key_hash, one in self._replaced.items()
            if not one.is_withdrawn and self._deadlines[key_hash] <= now
        ]

    def is_known(self, credential: str) -> bool:
        """Whether the store had this secret when last read; the key may be revoked."""
        return self._find(_token(credential)) is not None

    @contextmanager
    def doubting(self, credential: str) -> Generator[None]:
        """Meanwhile `authenticate` raises KeyInDoubt for this credential if it is unknown, as the store could not be
        asked."""
        token = _token(credential)
        self._in_doubt[token] += 1
        try:
            yield
        finally:
            self._in_doubt[token] -= 1
            self._in_doubt += Counter()  # drops counts of zero

    def authenticate(self, credential: str | None, now_us: int) -> KeyRecord:
        """The key behind an `Authorization: Bearer` or `x-api-key` value. Raises Unauthenticated with advice, or
        KeyInDoubt if the database might know the key."""
        if not credential:
            raise Unauthenticated(
                "No API key was given. Send 'Authorization: Bearer YOUR_KEY'; `breakeven keys create` makes one."
            )
        key_hash = self._find(_token(credential))
        record = self._records.get(key_hash) if key_hash is not None else None
        replaced = self._replaced.get(key_hash) if key_hash is not None and record is None else None
        if replaced is not None:
            record = self._rotated.get(replaced.key_id)
        if (key_hash is None or record is None) and _token(credential) in self._in_doubt:
            raise KeyInDoubt(retry_after_seconds=DOUBT_SECONDS)
        if key_hash is None or record is None:
            raise Unauthenticated("This API key is not known here. Check it, or make one: `breakeven keys create`.")
        _require_valid(record, now_us)
        if replaced is not None:
            self._use(key_hash, replaced, record)
        return record

    def of_id(self, key_id: str, now_us: int) -> KeyRecord:
        """A key authenticated earlier, for work that continues without its secret. Raises Unauthenticated."""
        if not self._by_id:
            self._by_id = {record.id: record for record in self._records.values()}
        record = self._by_id.get(key_id)
        if record is None:
            raise Unauthenticated("The API key of this request is not known here any more.")
        _require_valid(record, now_us)
        return record

    def _use(self, key_hash: bytes, replaced: ReplacedSecret, record: KeyRecord) -> None:
        """Records the use of a replaced secret. Raises Unauthenticated when the overlap is over."""
        now = self._unstepped()
        if now >= self._deadlines[key_hash]:
            since, until = (f"{moment_of(at):%Y-%m-%d %H:%M}" for at in (replaced.replaced_at_us, replaced.ends_at_us))
            raise Unauthenticated(
                f"This secret of the API key {record.name!r} was replaced on {since} UTC and worked until {until} UTC; "
                "use the new one."
            )
        self._used[key_hash] = now

    def _find(self, token: str) -> bytes | None:
        """The stored hash that this token matches, or None. LiteLLM's hash is tried only for its prefix, and only if
        keys were imported from LiteLLM."""
        sent = token.encode("utf-8", "surrogateescape")
        keyed = self._keyed.copy()
        keyed.update(sent)
        if self._is_there(own := keyed.digest()):
            return own
        if not (self._has_litellms and token.startswith(LITELLM_PREFIX)):
            return None
        keyed = self._keyed_for_litellm.copy()
        keyed.update(hashlib.sha256(sent).digest())
        return theirs if self._is_there(theirs := keyed.digest()) else None

    def _is_there(self, key_hash: bytes) -> bool:
        return key_hash in self._records or key_hash in self._replaced


def _token(credential: str) -> str:
    is_bearer = credential[: len(BEARER)].lower() == BEARER  # in any case (RFC 9110, 11.1)
    return (credential[len(BEARER) :] if is_bearer else credential).strip()


def _has_expired(record: KeyRecord, now_us: int) -> bool:
    return record.expires_at_us is not None and record.expires_at_us <= now_us


def _require_valid(record: KeyRecord, now_us: int) -> None:
    if record.revoked_at_us is not None:  # regardless of the clock, which may be behind or set back
        raise Unauthenticated(f"The API key {record.name!r} was revoked.")
    if _has_expired(record, now_us):
        raise Unauthenticated(f"The API key {record.name!r} has expired.")


def require_model_access(key: KeyRecord) -> None:
    """Leads, viewers and finance read the books; only apps, editors and owners spend money."""
    if key.role in ("lead", "viewer", "finance"):
        raise Forbidden(f"The key {key.name!r} has the role {key.role!r}, which may read but not call models.")
