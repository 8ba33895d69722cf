"""Responses with `store: false` that were answered over a WebSocket: while it is open the latest can be continued by
`previous_response_id`, as at OpenAI. In memory only. Knows no socket.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from backends.formats.json_objects import Fields, decode_object
from backends.formats.json_splice import VALUES
from backends.formats.past_thinking import is_our_reasoning, without_reasoning
from gateway.kept_answers.conversation_items import items_of, joined, output_of
from gateway.kept_answers.expiring import Expiring

OVERHEAD_BYTES: Final = 256
"""Approximate size of one turn besides its items."""
KEPT_SECONDS: Final = 3660.0
"""A little longer than a WebSocket may be open."""


class SocketTurn(msgspec.Struct, frozen=True):
    """All items up to the end of a response, as a JSON array, and the stored response before the first of them."""

    items: bytes
    previous: str | None


class Asked(msgspec.Struct, frozen=True):
    """The fields of a request that this file reads."""

    input: msgspec.Raw = msgspec.Raw(b"[]")
    previous_response_id: object = None
    conversation: object = None


class SocketTurns:
    """All of one process, at most `max_bytes`; an owner with more than a quarter of a full memory loses its own."""

    def __init__(self, *, max_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._turns: Expiring[SocketTurn] = Expiring(_size, max_bytes=max_bytes, monotonic=monotonic)

    def find(self, socket: str, response_id: object) -> SocketTurn | None:
        return self._turns.get(_name(socket, response_id)) if isinstance(response_id, str) else None

    def keep(self, socket: str, response_id: str, turn: SocketTurn, *, owner: str) -> None:
        self._turns.put(_name(socket, response_id), turn, KEPT_SECONDS, owner=owner)

    def forget(self, socket: str, response_id: str) -> None:
        self._turns.drop(_name(socket, response_id))


def turn_of(asked: Asked, before: SocketTurn | None) -> SocketTurn | None:
    """A request's own items behind those of the turn that it continues, if any. None if its `input` is no input, or
    belongs to a conversation, which has its own memory."""
    items = items_of(bytes(asked.input))
    if items is None or asked.conversation is not None:
        return None
    if before is None:
        previous = asked.previous_response_id
        return SocketTurn(items, previous if isinstance(previous, str) else None)
    return SocketTurn(joined((before.items, items)), before.previous)


def answered(turn: SocketTurn, response: bytes) -> SocketTurn | None:
    """The turn with the answer; None if a provider's has no list of items. Reasoning that its provider kept from us is
    left out: sent back, it would be refused."""
    try:
        output = output_of(response)
        items = VALUES.decode(output)
    except msgspec.DecodeError:
        return None
    if any(_is_kept_from_us(decode_object(bytes(item)) or {}) for item in items):
        output = without_reasoning(output)
    return SocketTurn(joined((turn.items, output)), turn.previous)


def _is_kept_from_us(item: Fields) -> bool:
    return item.get("type") == "reasoning" and not item.get("encrypted_content") and not is_our_reasoning(item)


def _name(socket: str, response_id: object) -> str:
    return f"{socket}\0{response_id}"


def _size(turn: SocketTurn) -> int:
    return OVERHEAD_BYTES + len(turn.items)
