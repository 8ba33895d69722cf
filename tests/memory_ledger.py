"""A ledger that keeps its records in a list and refuses whatever the contract forbids."""

from collections.abc import Mapping

from gateway.ledger.entry import Checkpoint, Entry, Intent


class MemoryLedger:
    def __init__(self) -> None:
        self.open: dict[str, Intent] = {}
        self.entries: list[Entry] = []
        self.checkpoints: list[Checkpoint] = []

    def intend(self, intent: Intent) -> None:
        assert intent.request_id not in self.open
        self.open[intent.request_id] = intent

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.request_id in self.open
        self.checkpoints.append(checkpoint)

    async def settle(self, entry: Entry) -> None:
        assert self.open.pop(entry.intent.request_id) == entry.intent, "settled twice, or never intended"
        self.entries.append(entry)

    def gauges(self) -> Mapping[str, float]:
        return {"open_intents": float(len(self.open))}
