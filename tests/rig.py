"""A pipeline over scripted backends and an in-memory ledger: everything real but the network and the disk."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from backends.errors import BackendError
from backends.protocol import Chunk
from backends.scripted import Outcome, Script, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from classifier.protocol import Classification, Conversation, ModelProfile, Quality
from gateway.access.keys import KeyRecord, KeyRing, hash_key
from gateway.ledger.entry import Entry
from gateway.pipeline import Incoming, Pipeline
from gateway.routing.fallback import RetryPolicy
from gateway.routing.snapshot import Candidate
from gateway.upstreams.load import Upstreams
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.memory_ledger import MemoryLedger

KEY, PEPPER = "bk-test", b"pepper"
A = make_candidate("a", backend="one", prices=make_prices(1.0, 4.0))
B = make_candidate("b", backend="two", prices=make_prices(10.0, 40.0))


class RecordingCaller:
    """Records what it is sent. After `leaves_after` sends it cancels the task that serves it, as a disconnect does."""

    def __init__(self, leaves_after: int | None = None) -> None:
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.sent: list[bytes] = []
        self.is_complete = False
        self.is_gone = False
        self._leaves_after = leaves_after
        self._is_outlived = False

    def outlive(self, seconds: float | None = None) -> None:
        self._is_outlived = True

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        assert self.status is None
        self.status, self.headers = status, headers

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        assert not self.is_complete
        if self.is_gone or not payload:
            return
        self.sent.append(payload)
        self.is_complete = is_last
        self.is_gone = self._leaves_after == len(self.sent)
        if self.is_gone and not self._is_outlived:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    @property
    def body(self) -> bytes:
        return b"".join(self.sent)


class FixedClassifier:
    version = "fixed"

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def classify(self, conversation: Conversation) -> Classification:
        if self._fails:
            raise RuntimeError("broken artefact")
        return Classification(0.25, 0.1, {"a": Quality(0.9, 0.1), "b": Quality(0.95, 0.1)}, {"a": 50.0, "b": 50.0})

    def bind(self, profiles: "list[ModelProfile] | Any") -> "FixedClassifier":
        return self


class Observed:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.failed: list[str] = []
        self.unclassified_count = 0

    def settled(self, entry: Entry) -> None:
        self.entries.append(entry)

    def unclassified(self) -> None:
        self.unclassified_count += 1

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None:
        self.failed.append(f"{candidate.name}:{type(error).__name__}")


class Rig:
    """A pipeline over two scripted backends, `one` (model a, cheap) and `two` (model b)."""

    def __init__(self, one: Script | None = None, two: Script | None = None, **changes: Any) -> None:
        self.ledger = MemoryLedger()
        self.observed = Observed()
        keys = KeyRing(PEPPER)
        record = KeyRecord("key-1", "test", "app", team="red", tags=("base",))
        viewer = KeyRecord("key-2", "reader", "viewer")
        self.records = {hash_key(PEPPER, KEY): record, hash_key(PEPPER, "bk-viewer"): viewer}
        keys.replace(self.records)
        self.one = ScriptedBackend("one", one or follow([Outcome()]), keeps_calls=True, sleep=self._sleep)
        self.two = ScriptedBackend("two", two or follow([Outcome()]), keeps_calls=True, sleep=self._sleep)
        self.pipeline = Pipeline(
            keys=keys,
            backends={one.name: TranslatingBackend(one, native={"responses"}) for one in (self.one, self.two)},
            upstreams=Upstreams(),
            ledger=self.ledger,
            observer=self.observed,
            snapshot=make_snapshot(candidates=[A, B]),
            classifier=changes.pop("classifier", FixedClassifier()),
            retry_policy=changes.pop("retry_policy", RetryPolicy(first_wait_seconds=0.0)),
            **changes,
        )

    def add_key(self, key: str, record: KeyRecord) -> None:
        self.records[hash_key(PEPPER, key)] = record

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def ask(self, caller: RecordingCaller | None = None, **body: Any) -> RecordingCaller:
        caller = caller or RecordingCaller()
        full = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], **body}
        incoming = Incoming("chat.completions", f"Bearer {KEY}", json.dumps(full).encode(), ("extra",))
        await self.pipeline.answer(incoming, caller)
        return caller

    @property
    def entry(self) -> Entry:
        assert len(self.ledger.entries) == 1
        assert not self.ledger.open
        return self.ledger.entries[0]
