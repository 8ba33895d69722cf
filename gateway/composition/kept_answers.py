"""The part of the composition root that names where answers are kept: under idempotency keys, in the response cache,
and for the turn that goes on from them."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.config.settings import KeptAnswerSettings
from gateway.errors import StateError, StoreDown
from gateway.extras import install_command
from gateway.kept_answers.conversations import TurnStore
from gateway.kept_answers.idempotency import IdempotencyStore
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.response_cache import ResponseStore
from gateway.storage.turns.disk_turns import DiskTurns
from gateway.storage.turns.disposable_file import remove_file
from gateway.storage.turns.turn_file import TurnFile

log = logging.getLogger(__name__)
HOUR_SECONDS = 3600
HOURS_HERE = 24


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Of one worker. `forget`, now and then, removes what is over; `aclose` closes what was opened for them."""

    idempotency: IdempotencyStore
    responses: ResponseStore
    turns: TurnStore
    turn_seconds: float
    forget: Callable[[], Awaitable[None]]
    aclose: Callable[[], Awaitable[None]]


def open_kept_answers(url: str | None, settings: KeptAnswerSettings, turns_file: Path) -> KeptAnswers:
    """In Redis at `url`, which is not connected yet; else in this process, and responses in that file.

    Raises StateError when Redis is configured and its client is not installed.
    """
    seconds, most = settings.idempotency_hours * HOUR_SECONDS, settings.memory_megabytes << 20
    if url is None:
        turn_seconds = HOUR_SECONDS * (HOURS_HERE if settings.response_hours is None else settings.response_hours)
        disk = _open_on_disk(turns_file, settings, turn_seconds)
        return KeptAnswers(
            MemoryIdempotency(seconds=seconds, max_bytes=most),
            MemoryResponses(max_bytes=most),
            disk or MemoryTurns(max_bytes=most),
            turn_seconds,
            disk.forget if disk is not None else _nothing_to_do,
            disk.aclose if disk is not None else _nothing_to_do,
        )
    _remove(turns_file)
    try:
        from gateway.storage.redis.bytes import connect_bytes
        from gateway.storage.redis.idempotency import RedisIdempotency
        from gateway.storage.redis.responses import RedisResponses
        from gateway.storage.redis.turns import RedisTurns
    except ModuleNotFoundError as error:
        raise StateError(f"Redis is configured and {error.name} is missing: {install_command('redis')}") from error
    client = connect_bytes(url)
    return KeptAnswers(
        RedisIdempotency(client, seconds=seconds),
        RedisResponses(client),
        RedisTurns(client),
        HOUR_SECONDS * (settings.response_hours or 0),
        _nothing_to_do,
        client.aclose,
    )


def _open_on_disk(file: Path, settings: KeptAnswerSettings, seconds: float) -> DiskTurns | None:
    """None where they are not to be there, and then no earlier ones stay; or where it cannot be, which is logged."""
    if not (settings.disk_megabytes and seconds):
        _remove(file)
        return None
    turns = DiskTurns(
        TurnFile(file, max_bytes=settings.disk_megabytes << 20, longest_seconds=seconds),
        memory_bytes=settings.memory_megabytes << 20,
    )
    try:
        turns.open()
    except StoreDown as error:
        log.warning("responses are kept in memory until the next start, which loses them: %s", error)
        return None
    return turns


def _remove(file: Path) -> None:
    """What an earlier configuration left there: nobody would ever forget it."""
    try:
        remove_file(file)
    except OSError as error:
        log.warning("%s holds responses of an earlier configuration, and cannot be removed: %s", file, error)


async def _nothing_to_do() -> None:
    return None
