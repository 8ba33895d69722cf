"""The part of the composition root that names where answers are kept: under idempotency keys, in the response cache,
and for the turn that goes on from them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.config.settings import KeptAnswerSettings
from gateway.errors import StateError
from gateway.extras import install_command
from gateway.kept_answers.conversations import TurnStore
from gateway.kept_answers.idempotency import IdempotencyStore
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.response_cache import ResponseStore

HOUR_SECONDS = 3600
MEMORY_HOURS = 24


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Of one worker; `aclose` closes what was opened for them."""

    idempotency: IdempotencyStore
    responses: ResponseStore
    turns: TurnStore
    turn_seconds: float
    aclose: Callable[[], Awaitable[None]]


def open_kept_answers(url: str | None, settings: KeptAnswerSettings) -> KeptAnswers:
    """In Redis at `url`, else in this process. Nothing is connected yet.

    Raises StateError when Redis is configured and its client is not installed.
    """
    seconds, most = settings.idempotency_hours * HOUR_SECONDS, settings.memory_megabytes << 20
    if url is None:
        return KeptAnswers(
            MemoryIdempotency(seconds=seconds, max_bytes=most),
            MemoryResponses(max_bytes=most),
            MemoryTurns(max_bytes=most),
            HOUR_SECONDS * (MEMORY_HOURS if settings.response_hours is None else settings.response_hours),
            _nothing_to_close,
        )
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
        client.aclose,
    )


async def _nothing_to_close() -> None:
    return None
