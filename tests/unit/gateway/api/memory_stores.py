"""The database's stores in memory, for tests of code that uses them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gateway.access.keys import KeyRecord, ReplacedSecret, hash_key
from gateway.access.rotation import NewSecret, OldSecret, Rotation
from gateway.batches.values import Batch, Status
from gateway.economics.traffic import HourlyTraffic
from gateway.errors import Conflict
from gateway.instants import moment_of
from gateway.kept_answers.body_keeper import Bodies
from gateway.ledger.entry import Entry
from gateway.limits.values import BudgetScope
from gateway.rulebook.versions import Activation, StoredRules
from gateway.stores import (
    AuditRecord,
    BatchCost,
    Budget,
    Correction,
    EntryWanted,
    KeyChange,
    ListedKey,
    NewKey,
    Verified,
)
from gateway.sums import Dimension, Sums, SumsQuery

PEPPER = b"pepper"
NOW_US = 1_790_000_000_000_000


class MemoryRules:
    """RulesStore without a database."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredRules] = {}
        self.log: list[Activation] = []
        self.diffs: list[str] = []

    async def put(self, rules: StoredRules) -> None:
        self.stored.setdefault(rules.version, rules)

    async def get(self, version: str) -> StoredRules | None:
        return self.stored.get(version)

    async def versions(self) -> Sequence[StoredRules]:
        return list(reversed(self.stored.values()))

    async def active(self) -> str | None:
        return self.log[-1].version if self.log else None

    async def activate(self, activation: Activation, *, diff: str) -> bool:
        if await self.active() != activation.previous:
            return False
        self.log.append(activation)
        self.diffs.append(diff)
        return True

    async def activations(self) -> Sequence[Activation]:
        return list(reversed(self.log))


class MemoryKeys:
    """KeyStore without a database; secrets are readable, so that a test can use them."""

    def __init__(self) -> None:
        self.listed: list[ListedKey] = []
        self.secrets: dict[str, str] = {}
        self.limited: dict[str, Mapping[str, Any]] = {}
        self.used_on: dict[str, int] = {}
        self.from_litellm: set[str] = set()

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        allowed = frozenset(new.allowed_models) if new.allowed_models is not None else None
        record = KeyRecord(
            f"key-{len(self.listed)}", new.name, new.role, new.team, new.project, new.tags, allowed, new.expires_at_us
        )
        self.listed.append(ListedKey(record, NOW_US))
        self.secrets[record.id] = f"bk-{record.id}"
        self.limited[record.id] = limits or {}
        return self.listed[-1], self.secrets[record.id]

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        return [one for one in reversed(self.listed) if ids is None or one.record.id in ids]

    async def revoke(self, key_id: str, *, author: str) -> bool:
        for index, one in enumerate(self.listed):
            if one.record.id == key_id:
                self.listed[index] = ListedKey(replace(one.record, revoked_at_us=NOW_US), one.created_at_us)
                return True
        return False

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        return self.limited

    async def last_days(self) -> Mapping[str, int]:
        return self.used_on

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        for index, one in enumerate(self.listed):
            if one.record.id == key_id:
                given: dict[str, Any] = dict(change)
                self.limited[key_id] = given.pop("limits", self.limited[key_id])
                for name, form in (("tags", tuple), ("allowed_models", frozenset)):
                    if given.get(name) is not None:
                        given[name] = form(given[name])
                self.listed[index] = ListedKey(replace(one.record, **given), one.created_at_us)
                return True
        return False

    async def records(self) -> Mapping[bytes, KeyRecord]:
        return self.ring()

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        return self.ring().get(key_hash)

    async def litellms(self) -> Collection[str]:
        return self.from_litellm

    async def has_litellms(self) -> bool:
        return False

    def ring(self) -> dict[bytes, KeyRecord]:
        return {hash_key(PEPPER, self.secrets[one.record.id]): one.record for one in self.listed}


class MemorySecrets:
    """SecretStore for MemoryKeys, at NOW_US; keeps every old secret."""

    def __init__(self, keys: MemoryKeys) -> None:
        self._keys = keys
        self.old: dict[bytes, ReplacedSecret] = {}
        self.used: dict[bytes, float] = {}

    async def rotate(self, key_id: str, *, overlap_seconds: int, author: str) -> NewSecret | None:
        key = next((one.record for one in self._keys.listed if one.record.id == key_id), None)
        if key is None:
            return None
        if key.revoked_at_us is not None:
            raise Conflict(f"The key {key.name!r} was revoked; create another key.", code="key_revoked")
        ends_at_us = NOW_US + overlap_seconds * 10**6
        old = hash_key(PEPPER, self._keys.secrets[key_id])
        self.old[old] = ReplacedSecret(key_id, NOW_US, ends_at_us, float(overlap_seconds), not overlap_seconds)
        self._keys.secrets[key_id] = secret = f"bk-{key_id}-{len(self.old)}"
        return NewSecret(secret, ends_at_us)

    async def end_overlap(self, key_id: str, *, author: str) -> bool:
        await self.withdraw([key_hash for key_hash, one in self.old.items() if one.key_id == key_id])
        return any(one.record.id == key_id for one in self._keys.listed)

    async def rotations(self) -> Mapping[str, Rotation]:
        found: dict[str, Rotation] = {}
        for one in self.old.values():
            working = OldSecret(one.replaced_at_us, one.ends_at_us, None)
            before = found.get(one.key_id, Rotation(one.replaced_at_us)).working
            found[one.key_id] = Rotation(NOW_US, before if one.is_withdrawn else (working, *before))
        return found

    async def replaced(self) -> Mapping[bytes, ReplacedSecret]:
        return dict(self.old)

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        self.used |= seconds_ago

    async def withdraw(self, hashes: Collection[bytes]) -> None:
        for key_hash in hashes:
            self.old[key_hash] = replace(self.old[key_hash], seconds_left=0.0, is_withdrawn=True, ends_at_us=NOW_US)


class MemoryBudgets:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Budget] = {}

    async def budgets(self) -> Sequence[Budget]:
        return list(self.kept.values())

    async def set(self, budget: Budget) -> None:
        self.kept[budget.scope, budget.name] = budget

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        return self.kept.pop((scope, name), None) is not None


class NoSums:
    """A ReportStore of an empty ledger."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        return []

    async def hourly_traffic(self, since_us: int, until_us: int, *, on_gpus: bool = False) -> Sequence[HourlyTraffic]:
        return []

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return None

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        return {}


class OneSum(NoSums):
    """Everything was spent on the last day of every period."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        if query.by not in ((), ("day",), ("day", "status")):
            return []
        last: dict[Dimension, str | None] = {"day": moment_of(query.until_us - 1).date().isoformat()}
        return [Sums(last if query.by else {}, requests=1, input_pico_usd=25 * 10**12)]


class MemoryBodies:
    def __init__(self) -> None:
        self.stored: dict[str, Bodies] = {}
        self.readers: list[str] = []

    async def read(self, request_id: str, *, reader: str) -> Bodies | None:
        self.readers.append(reader)
        return self.stored.get(request_id)


class MemoryAllBatches:
    """AllBatches that records who stopped which batch."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.stopped: list[tuple[str, str]] = []

    async def recent(
        self, limit: int, statuses: Sequence[Status] | None = None, *, tenant: str | None = None
    ) -> Sequence[Batch]:
        found = [one for one in self.batches if statuses is None or one.status in statuses]
        return [one for one in found if tenant in (None, one.tenant)][:limit]

    async def stop(self, batch_id: str, *, author: str) -> Batch | None:
        self.stopped.append((batch_id, author))
        found = next((one for one in self.batches if one.id == batch_id), None)
        return None if found is None else msgspec.structs.replace(found, status="cancelling")


class MemoryAudit:
    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRecord]:
        return []

    async def verify(self) -> Verified:
        return Verified(is_intact=True, records=0, first_broken=None)


class MemoryEntries:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.booked: list[Correction] = []

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        return list(reversed(self.entries))[: wanted.limit]

    async def get(self, request_id: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.intent.request_id == request_id), None)

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        of = {number: [one for one in self.booked if one.booked.request_id == number] for number in request_ids}
        return {number: found for number, found in of.items() if found}

    async def batch_cost(self, batch_id: str, *, team: str | None = None) -> BatchCost:
        of_batch = [one for one in self.entries if one.intent.batch_id == batch_id]
        mine = [one for one in of_batch if team in (None, one.intent.team)]
        costs = [one.cost.total_pico_usd for one in mine if one.cost is not None]
        tokens = sum(one.input_tokens for one in mine), sum(one.output_tokens for one in mine)
        return BatchCost(len(mine), len(mine) - len(costs), *tokens, sum(costs))
