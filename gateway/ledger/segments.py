"""The journal's files: fixed-size zeroed segments, appended to in order, scanned at start, removed oldest first.

Knows records, not what they mean. Not thread-safe, except for the methods that say so.
"""

import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from gateway.ledger.batch import Batch
from gateway.ledger.disk import ZEROS, Disk, DiskFile
from gateway.ledger.record import Framing, Kind, Record

READ_BYTES = 1 << 17
PAGE_BYTES = 4096
MOST_UNREADABLE_PAGES = 64
CALM_SHARE = 0.75
SEGMENT_NAME = re.compile(r"[0-9]{16}\.seg")  # nothing else, such as an operator's copy beside it
NOTE = "{:016d} {:016d}\n"


@dataclass(slots=True)
class Segment:
    """One file; `end` is where the next record goes."""

    epoch: int
    file: DiskFile
    end: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.file.size

    @property
    def name(self) -> str:
        return segment_name(self.epoch)


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in the journal; compares in journal order."""

    epoch: int
    offset: int


class NoRoom(Exception):
    """The record fits neither the current segment nor the spare."""


def segment_name(epoch: int) -> str:
    """The suffix is the format version: a later format gets another suffix, which this code ignores."""
    return f"{epoch:016d}.seg"


class Segments:
    """The files of one journal directory."""

    def __init__(self, disk: Disk, *, segment_bytes: int, framing: Framing) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._framing = framing
        self._used: list[Segment] = []
        self._spare: Segment | None = None
        self._dirty: dict[int, Segment] = {}
        self.noted = Position(0, 0)
        self.discarded_bytes = 0
        self.rescued_records = 0

    @property
    def current(self) -> Segment:
        return self._used[-1]

    @property
    def end(self) -> Position:
        current = self._used[-1]
        return Position(current.epoch, current.end)

    @property
    def start(self) -> Position:
        return Position(self._used[0].epoch, 0)

    @property
    def total_bytes(self) -> int:
        """Bytes of records in the segments still kept."""
        return sum(segment.end for segment in self._used)

    @property
    def has_spare(self) -> bool:
        return self._spare is not None

    @property
    def free_bytes(self) -> int:
        """Bytes that can certainly still be appended, wherever segment boundaries fall."""
        last = self._spare or self._used[-1]
        return last.size - last.end

    def recover(self) -> Iterator[tuple[int, Record]]:
        """Open the existing files and yield every whole record in order, with its epoch. Exhaust this before any other
        call; after an error, `close`. Meanwhile `noted` is what an earlier process noted as shipped, moved where a
        record that ended there has moved."""
        noted = self.noted = self._noted_shipped()
        for name in sorted(filter(SEGMENT_NAME.fullmatch, self._disk.names())):
            self._used.append(Segment(int(name[:16]), self._disk.open(name)))
        found = self._used
        for segment in found:
            content = _read_whole(segment.file)
            settled: set[str] = set()
            for record in self._framing.scan(segment.epoch, content):
                segment.end = record.end
                if record.kind is Kind.SETTLE:
                    settled.add(record.request_id)
                yield segment.epoch, record
            if (joined := self._joined_over_damage(segment, content, settled)) is not None:
                for record in self._framing.scan(segment.epoch, joined, start=segment.end):
                    segment.end = record.end
                    self.rescued_records += 1
                    yield segment.epoch, record
                content = joined + content[len(joined) :]
            self.make_clean(segment, content)
        if self.noted != noted:
            self.note_shipped(self.noted)
        used = [segment for segment in found if segment.end]
        empty = [segment for segment in found if not segment.end]
        self._used = used or [empty.pop(0) if empty else self._create(1)]
        # The spare must come after the last used segment, because epochs rise in record order. It must also be full
        # size: one truncated by a copy or repair lacks the room that `free_bytes` promises.
        for segment in empty:
            is_whole = segment.size >= self._segment_bytes
            if is_whole and segment.epoch > self.current.epoch and self._spare is None:
                self._spare = segment
            else:
                segment.file.close()
                self._disk.remove(segment.name)

    def _joined_over_damage(self, segment: Segment, content: bytes, settled: set[str]) -> bytes | None:
        """The segment's content with the whole records found after damage moved up to its last whole record before it;
        None if there are none.

        After power loss, records behind a torn one were never acknowledged. On a damaged disk, or one that lied about
        a sync, they may have been, so they are kept. Requests settled before are left out: power loss during this very
        repair leaves some records in both places.
        """
        last = _end_of_bytes(content, segment.end)
        kept, end, noted = [content[: segment.end]], segment.end, self.noted
        for position in self._framing.find_runs(segment.epoch, content, segment.end, last):
            for record in self._framing.scan(segment.epoch, content, start=position):
                if record.request_id not in settled:
                    kept.append(content[position : record.end])
                    end += record.end - position
                if record.kind is Kind.SETTLE:
                    settled.add(record.request_id)
                position = record.end
                if Position(segment.epoch, position) == noted:
                    self.noted = Position(segment.epoch, end)
        return b"".join(kept) if len(kept) > 1 else None

    def make_clean(self, segment: Segment, content: bytes) -> None:
        """Make what was read durable, and zero what follows it.

        The good bytes are rewritten because after a failed sync the kernel may show bytes that never reached the disk.
        The rest is zeroed because a whole record of the lost tail could otherwise end up right after a new one.
        """
        lost = _end_of_bytes(content, segment.end) - segment.end
        if segment.end:
            segment.file.write(0, content[: segment.end])
        if lost:
            self.discarded_bytes += lost
            segment.file.write(segment.end, bytes(lost))
        if segment.end or lost:
            segment.file.sync()

    def append(self, kind: Kind, request_id: str, payload: bytes) -> Position:
        """Write one record and return where it begins. Raises NoRoom, ValueError or OSError, changing nothing."""
        segment = self._used[-1]
        framed = self._framing.frame(segment.epoch, kind, request_id, payload)
        if len(framed) > segment.size - segment.end:
            segment = self._spare
            if segment is None or len(framed) > segment.size - segment.end:
                raise NoRoom
            framed = self._framing.frame(segment.epoch, kind, request_id, payload)
        segment.file.write(segment.end, framed)
        if segment is self._spare:
            self._used.append(segment)
            self._spare = None
        position = Position(segment.epoch, segment.end)
        segment.end += len(framed)
        self._dirty[segment.epoch] = segment
        return position

    def touch(self) -> None:
        """Write a zero where the next record goes, which is one already. Raises OSError, as that record would."""
        segment = self._used[-1]
        if segment.end < segment.size:
            segment.file.write(segment.end, b"\0")

    def take_dirty(self) -> Sequence[DiskFile]:
        """The files with unsynced records, oldest first; the caller syncs them, in this order."""
        dirty = [segment.file for segment in self._dirty.values()]
        self._dirty = {}
        return dirty

    def create_spare(self) -> Segment:
        """Prepare the next segment; may run in a thread; hand the result to `keep_spare`. Raises OSError.

        It takes its time while most of the present one is still free.
        """
        return self._create(self.current.epoch + 1)

    def keep_spare(self, segment: Segment) -> None:
        self._spare = segment

    def read_settled(self, position: Position, until: Position) -> tuple[Batch, Position]:
        """Some of the settlements in [position, until) and where to continue, which is `position` only when nothing is
        left."""
        for segment in self._used:
            if segment.epoch < position.epoch:
                continue
            offset = position.offset if segment.epoch == position.epoch else 0
            limit = until.offset if segment.epoch == until.epoch else segment.end
            if segment.epoch > until.epoch or offset >= limit:
                continue
            length = READ_BYTES
            while True:
                try:
                    content = segment.file.read(offset, min(length, limit - offset))
                except OSError as error:
                    raise _unreadable(segment, offset, error.strerror) from error
                request_ids, payloads, end = self._framing.scan_settled(segment.epoch, content, offset)
                if end > offset:
                    return Batch(request_ids, payloads), Position(segment.epoch, end)
                if length >= limit - offset:
                    raise _unreadable(segment, offset, "damaged")
                length *= 4
        return Batch(), position

    def note_shipped(self, position: Position) -> None:
        """Note the position for the next process. Raises OSError."""
        self._disk.note(NOTE.format(position.epoch, position.offset).encode("ascii"))

    def _noted_shipped(self) -> Position:
        """What an earlier process noted; the very start if unreadable."""
        try:
            epoch, offset = map(int, self._disk.noted().split())
            return Position(epoch, offset)
        except ValueError:
            return Position(0, 0)

    def before(self, position: Position) -> Sequence[Segment]:
        """The segments that end before `position`; never the current one."""
        return [segment for segment in self._used[:-1] if segment.epoch < position.epoch]

    def forget(self, segments: Sequence[Segment]) -> None:
        """Stop using these segments; the caller deletes them with `delete`."""
        gone = {segment.epoch for segment in segments}
        self._used = [segment for segment in self._used if segment.epoch not in gone]

    def delete(self, segments: Sequence[Segment]) -> None:
        """Remove forgotten segments from the disk; may run in a thread."""
        for segment in segments:
            segment.file.close()
            self._disk.remove(segment.name)

    def _is_spare_urgent(self) -> bool:
        return not self._used or self.current.size - self.current.end < self._segment_bytes * CALM_SHARE

    def close(self) -> None:
        for segment in [*self._used, *([self._spare] if self._spare else [])]:
            segment.file.close()

    def _create(self, epoch: int) -> Segment:
        name = segment_name(epoch)
        self._disk.create(name, self._segment_bytes, is_urgent=self._is_spare_urgent)
        return Segment(epoch, self._disk.open(name))


def _unreadable(segment: Segment, offset: int, why: str | None) -> OSError:
    return OSError(
        errno.EIO,
        f"the journal's segment {segment.name} cannot be read at {offset} ({why}): restart the gateway, which then "
        "drops what is damaged and keeps all else",
    )


def _read_whole(file: DiskFile) -> bytes:
    """The file's content. The few pages that its disk cannot read are written anew, as zeros: like any other damage,
    they cost the records that they hit. Raises OSError if there are many, as when the disk is gone."""
    pieces: list[bytes] = []
    unreadable: list[int] = []
    done = 0
    while done < file.size:
        try:
            piece = file.read(done, file.size - done)
        except OSError as error:
            if error.errno != errno.EIO or len(unreadable) == MOST_UNREADABLE_PAGES:
                raise
            unreadable.append(done)
            piece = ZEROS[: min(PAGE_BYTES, file.size - done)]
        pieces.append(piece)
        done += len(piece)
    for offset in unreadable:
        file.write(offset, ZEROS[: min(PAGE_BYTES, file.size - offset)])
    return b"".join(pieces)


def _end_of_bytes(content: bytes, start: int) -> int:
    """The offset after the last non-zero byte, at least `start`. Skips zeros in large steps: `rstrip` alone takes a
    third of a second on a nearly empty segment."""
    end = len(content)
    while end - start >= len(ZEROS) and content[end - len(ZEROS) : end] == ZEROS:
        end -= len(ZEROS)
    return start + len(content[start:end].rstrip(b"\0"))
