"""Virtual keys in memory: who a bearer token belongs to. Filled from the key store; no IO on a request's path."""

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
"""After which it is worth asking again."""
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


@dataclass(frozen=True, slots=True)
class ReplacedSecret:
    """A secret whose place another took. `seconds_left` is how far off its end was by the store's clock when it was
    read; a withdrawn one has none."""

    key_id: str
    replaced_at_us: int
    ends_at_us: int
    seconds_left: float
    is_withdrawn: bool


NONE_REPLACED: Mapping[bytes, ReplacedSecret] = MappingProxyType({})


def hash_key(pepper: bytes, key: str) -> bytes:
    """HMAC-SHA256 of a key under the deployment's pepper: what is stored."""
    return hmac.digest(pepper, key.encode("utf-8", "surrogateescape"), hashlib.sha256)


LITELLM_PREFIX = "sk-"
"""Of every key that LiteLLM's proxy takes."""


def hash_litellm_digest(pepper: bytes, digest: bytes) -> bytes:
    """What is stored of a key that LiteLLM made, which keeps its SHA-256 alone.

    Under a secret of its own: who has read LiteLLM's database, and sends what stands there as a key, is nobody here.
    """
    return hmac.digest(_litellm_secret(pepper), digest, hashlib.sha256)


def _litellm_secret(pepper: bytes) -> bytes:
    return hmac.digest(pepper, b"keys of litellm", hashlib.sha256)


class KeyRing:
    """All keys by hash. Looking up a 256-bit hash compares no secret, so there is nothing to time."""

    def __init__(self, pepper: bytes, unstepped: Callable[[], float] = unstepped_seconds) -> None:
        self._pepper = pepper
        self._unstepped = unstepped
        # Keyed once, copied per request: the one-shot call lets other threads in, which costs more than the hash.
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
        """What separates a tenant's prompt cache from all others': nobody outside can compute or choose it."""
        return hmac.digest(self._pepper, b"cache salt\0" + tenant.encode(), hashlib.sha256).hex()[:32]

    def response_secret(self, team: str) -> bytes:
        """64 bytes under which a team's names of kept responses are made: nobody else's name means anything to it."""
        return hmac.digest(self._pepper, b"response names\0" + team.encode(), hashlib.sha512)

    def conversation_secret(self, tenant: str) -> bytes:
        """32 bytes under which a tenant's kept responses are sealed."""
        return hmac.digest(self._pepper, b"kept responses\0" + tenant.encode(), hashlib.sha256)

    def replace(
        self,
        records: Mapping[bytes, KeyRecord],
        replaced: Mapping[bytes, ReplacedSecret] = NONE_REPLACED,
        *,
        has_litellms: bool = False,
    ) -> None:
        """Take over a fresh copy of the store; atomic for everyone who asks. `has_litellms`: some were LiteLLM's."""
        now = self._unstepped()
        self._deadlines = {key_hash: self._deadline(key_hash, one, now) for key_hash, one in replaced.items()}
        ids = {one.key_id for one in replaced.values()}
        self._rotated = {one.id: one for one in records.values() if one.id in ids} if ids else {}
        self._replaced = replaced
        self._has_litellms = has_litellms
        self._records = records
        self._by_id = {}

    def _deadline(self, key_hash: bytes, one: ReplacedSecret, now: float) -> float:
        """By a clock that nobody sets, from when its end was first heard of: no step of another moves it."""
        known = self._replaced.get(key_hash)
        if known is not None and known.ends_at_us == one.ends_at_us and not one.is_withdrawn:
            return self._deadlines[key_hash]
        return now + one.seconds_left

    def working(self, now_us: int) -> Iterable[KeyRecord]:
        """Those that are let in."""
        return (one for one in self._records.values() if not (one.revoked_at_us or _has_expired(one, now_us)))

    def used(self) -> dict[bytes, float]:
        """Replaced secrets that were used and not yet forgotten to be, and when each was last."""
        return dict(self._used)  # copied at once: administration authenticates in threads

    def seconds_ago(self, used: Mapping[bytes, float]) -> dict[bytes, float]:
        now = self._unstepped()
        return {key_hash: now - at for key_hash, at in used.items()}

    def forget_uses(self, noted: Mapping[bytes, float]) -> None:
        """Those that were noted; one that was used again since is kept."""
        for key_hash, at in noted.items():
            if self._used.get(key_hash) == at:
                self._used.pop(key_hash, None)

    def overdue(self) -> list[bytes]:
        """Replaced secrets that are refused here because their time is over, and are not withdrawn in the store yet."""
        now = self._unstepped()
        return [
            key_hash
            for key_hash, one in self._replaced.items()
            if not one.is_withdrawn and self._deadlines[key_hash] <= now
        ]

    def is_known(self, credential: str) -> bool:
        """Whether the store had it when it was read; it may be revoked since."""
        return self._find(_token(credential)) is not None

    @contextmanager
    def doubting(self, credential: str) -> Generator[None]:
        """Meanwhile nobody says that it is no key, because the store could not be asked for it."""
        token = _token(credential)
        self._in_doubt[token] += 1
        try:
            yield
        finally:
            self._in_doubt[token] -= 1
            self._in_doubt += Counter()  # forgets those that nobody asks with any more

    def authenticate(self, credential: str | None, now_us: int) -> KeyRecord:
        """The key behind an `Authorization: Bearer` or `x-api-key` value. Raises Unauthenticated, saying what to do;
        KeyInDoubt where it is not known whether it is one."""
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
        """A key that was let in before, for work that goes on without its secret. Raises Unauthenticated."""
        if not self._by_id:
            self._by_id = {record.id: record for record in self._records.values()}
        record = self._by_id.get(key_id)
        if record is None:
            raise Unauthenticated("The API key of this request is not known here any more.")
        _require_valid(record, now_us)
        return record

    def _use(self, key_hash: bytes, replaced: ReplacedSecret, record: KeyRecord) -> None:
        """Raises Unauthenticated where the overlap is over."""
        now = self._unstepped()
        if now >= self._deadlines[key_hash]:
            since, until = (f"{moment_of(at):%Y-%m-%d %H:%M}" for at in (replaced.replaced_at_us, replaced.ends_at_us))
            raise Unauthenticated(
                f"This secret of the API key {record.name!r} was replaced on {since} UTC and worked until {until} UTC; "
                "use the new one."
            )
        self._used[key_hash] = now

    def _find(self, token: str) -> bytes | None:
        """Its hash, if it is a secret of somebody's. Only what LiteLLM may have made is looked for a second time, and
        only where keys of LiteLLM's were taken over."""
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
    return credential.removeprefix("Bearer ").removeprefix("bearer ").strip()


def _has_expired(record: KeyRecord, now_us: int) -> bool:
    return record.expires_at_us is not None and record.expires_at_us <= now_us


def _require_valid(record: KeyRecord, now_us: int) -> None:
    if record.revoked_at_us is not None:  # whatever the clock here says: it may be behind, or be put back
        raise Unauthenticated(f"The API key {record.name!r} was revoked.")
    if _has_expired(record, now_us):
        raise Unauthenticated(f"The API key {record.name!r} has expired.")


def require_model_access(key: KeyRecord) -> None:
    """Leads, viewers and finance read the books; only apps, editors and owners spend money."""
    if key.role in ("lead", "viewer", "finance"):
        raise Forbidden(f"The key {key.name!r} has the role {key.role!r}, which may read but not call models.")
