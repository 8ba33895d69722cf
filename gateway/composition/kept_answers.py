"""Composition root: where answers are kept, for idempotency keys, the response cache, and follow-up turns."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.config.settings import KeptAnswerSettings
from gateway.errors import StoreDown
from gateway.kept_answers.idempotency import IdempotencyStore
from gateway.kept_answers.kept_turns import TurnStore
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.record_store import RecordStore
from gateway.kept_answers.response_cache import ResponseStore
from gateway.storage.turns.disk_turns import DiskTurns
from gateway.storage.turns.disposable_file import remove_file
from gateway.storage.turns.turn_file import TurnFile

log = logging.getLogger(__name__)
HOUR_SECONDS = 3600
HOURS_HERE = 24


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Stores of one worker. `locks` guard conversations with a turn in progress. Call `forget` now and then to remove
    what has expired; `aclose` closes what was opened."""

    idempotency: IdempotencyStore
    responses: ResponseStore
    turns: TurnStore
    turn_seconds: float
    conversations: RecordStore
    conversation_seconds: float
    locks: RecordStore
    forget: Callable[[], Awaitable[None]]
    aclose: Callable[[], Awaitable[None]]


def open_kept_answers(
    url: str | None, settings: KeptAnswerSettings, turns_file: Path, conversations_file: Path, *, text_days: int
) -> KeptAnswers:
    """In Redis at `url`, not connected yet; otherwise in this process, with responses and conversations in those files.
    `text_days` is how long texts are kept."""
    seconds, most = settings.idempotency_hours * HOUR_SECONDS, settings.memory_megabytes << 20
    hours_here = HOURS_HERE if url is None else 0
    turn_seconds = HOUR_SECONDS * (hours_here if settings.response_hours is None else settings.response_hours)
    conversation_seconds = 24 * HOUR_SECONDS * text_days if turn_seconds else 0
    if url is None:
        turns = _open_here(turns_file, settings, turn_seconds, "responses")
        conversations = _open_here(conversations_file, settings, conversation_seconds, "conversations")
        disks = [one for one in (turns, conversations) if isinstance(one, DiskTurns)]

        async def forget() -> None:
            for disk in disks:
                await disk.forget()

        async def close() -> None:
            for disk in disks:
                await disk.aclose()

        return KeptAnswers(
            MemoryIdempotency(seconds=seconds, max_bytes=most),
            MemoryResponses(max_bytes=most),
            turns,
            turn_seconds,
            conversations,
            conversation_seconds,
            MemoryTurns(max_bytes=most),
            forget,
            close,
        )
    for file, what in ((turns_file, "responses"), (conversations_file, "conversations")):
        _remove(file, what)
    # Of an extra: see require_clients.
    from gateway.storage.redis.client import connect_bytes
    from gateway.storage.redis.idempotency import RedisIdempotency
    from gateway.storage.redis.responses import RedisResponses
    from gateway.storage.redis.turns import CONVERSATIONS, LOCKS, RedisTurns

    client = connect_bytes(url)
    return KeptAnswers(
        RedisIdempotency(client, seconds=seconds),
        RedisResponses(client),
        RedisTurns(client),
        turn_seconds,
        RedisTurns(client, prefix=CONVERSATIONS),
        conversation_seconds,
        RedisTurns(client, prefix=LOCKS),
        _nothing_to_do,
        client.aclose,
    )


def _open_here(file: Path, settings: KeptAnswerSettings, seconds: float, what: str) -> DiskTurns | MemoryTurns:
    """On disk; in memory if disk storage is off, removing earlier files, or if the file cannot be opened, which is
    logged."""
    memory = MemoryTurns(max_bytes=settings.memory_megabytes << 20)
    if not (settings.disk_megabytes and seconds):
        _remove(file, what)
        return memory
    turns = DiskTurns(
        TurnFile(file, max_bytes=settings.disk_megabytes << 20, longest_seconds=seconds),
        memory_bytes=settings.memory_megabytes << 20,
    )
    try:
        turns.open()
    except StoreDown as error:
        log.warning("%s are kept in memory until the next start, which loses them: %s", what, error)
        return memory
    return turns


def _remove(file: Path, what: str) -> None:
    """Removes a file left by an earlier configuration, which nothing would ever expire."""
    try:
        remove_file(file)
    except OSError as error:
        log.warning("%s holds %s of an earlier configuration, and cannot be removed: %s", file, what, error)


async def _nothing_to_do() -> None:
    return None
