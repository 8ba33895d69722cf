"""An in-memory disk that loses power like real ones, deterministic by its random generator.

A sector of 512 bytes is written completely or not at all. After power loss a sector has any one of its versions since
the last sync, independently of its neighbours. Names are durable when `create` and `remove` return.
"""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

SECTOR = 512


@dataclass(slots=True)
class SimulatedFile:
    """`cached` is what readers see, `durable` what is on the disk, `pending` each dirty sector's versions since."""

    disk: "SimulatedDisk"
    cached: bytearray
    durable: bytearray
    pending: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])

    @property
    def size(self) -> int:
        return len(self.cached)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.cached[offset : offset + length])

    def write(self, offset: int, content: bytes) -> None:
        self.disk.check_power()
        self.cached[offset : offset + len(content)] = content
        for sector in range(offset // SECTOR, (offset + len(content) - 1) // SECTOR + 1):
            version = bytes(self.cached[sector * SECTOR : (sector + 1) * SECTOR])
            self.pending.setdefault(sector, []).append(version)

    def sync(self) -> None:
        self.disk.check_power()
        self.disk.syncs += 1
        if self.disk.fail_sync_at == self.disk.syncs:
            # As on Linux: some sectors are written, the others marked clean, so that no later sync writes them.
            self._settle_at_random()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for sector, versions in self.pending.items():
            self.durable[sector * SECTOR : (sector + 1) * SECTOR] = versions[-1]
        self.pending = {}

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def close(self) -> None:
        """Does nothing."""

    def lose_power(self) -> None:
        self._settle_at_random()
        self.cached = bytearray(self.durable)

    def _settle_at_random(self) -> None:
        for sector, versions in self.pending.items():
            old = bytes(self.durable[sector * SECTOR : (sector + 1) * SECTOR])
            self.durable[sector * SECTOR : (sector + 1) * SECTOR] = self.disk.chance.choice([old, *versions])
        self.pending = {}


class SimulatedDisk:
    """`free_bytes` are left for `create`; `fail_sync_at` is the number, from 1, of the sync that fails."""

    def __init__(self, chance: random.Random, *, free_bytes: int = 1 << 30) -> None:
        self.chance = chance
        self.free_bytes = free_bytes
        self.fail_sync_at: int | None = None
        self.syncs = 0
        self.is_powered = True
        self.refuses_files = False
        self._files: dict[str, SimulatedFile] = {}
        self._notes = [b""]

    def names(self) -> list[str]:
        return list(self._files)

    def create(self, name: str, size: int, *, is_urgent: Callable[[], bool]) -> None:
        self.check_power()
        if self.refuses_files:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if size > self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free_bytes -= size
        self._files[name] = SimulatedFile(self, bytearray(size), bytearray(size))

    def open(self, name: str) -> SimulatedFile:
        return self._files[name]

    def remove(self, name: str) -> None:
        self.check_power()
        self.free_bytes += self._files.pop(name).size

    def note(self, content: bytes) -> None:
        self.check_power()
        self._notes.append(content)

    def noted(self) -> bytes:
        return self._notes[-1]

    def lose_power(self) -> None:
        """From now on nothing reaches the disk, until `restart`."""
        self.is_powered = False
        self._notes = [self.chance.choice(self._notes)]
        for file in self._files.values():
            file.lose_power()

    def restart(self) -> None:
        self.is_powered = True

    def check_power(self) -> None:
        if not self.is_powered:
            raise OSError(errno.ENODEV, "no power")
