"""Which tool call a piece of a chat stream belongs to, whatever its provider makes of `index`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.formats.json_objects import decode_object, part_of, text_of


@dataclass(slots=True)
class _Call:
    call_id: str | None
    name: str | None
    arguments: list[str] = field(default_factory=list[str])

    def is_followed_by(self, call_id: str | None, name: str | None) -> bool:
        """Whether a piece under the same number begins another call: one with another id, or, where ids say nothing,
        with another name or behind arguments that are whole."""
        if not name:
            return False
        if call_id:
            return self.call_id is not None and call_id != self.call_id
        if not self.arguments:
            return False
        return name != self.name or (self.call_id is None and is_whole(self.arguments))


class ToolCallNumbers:
    """Numbers the calls of one answer from 0 in the order in which they begin. Feed it every piece in order.

    OpenAI counts `index` up. Others leave it out, leave numbers out, or send 0 for every call: then a piece that
    brings a name, and an id of its own or none, begins a call.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}

    def number(self, piece: Mapping[str, object]) -> int:
        index, call_id = piece.get("index"), text_of(piece, "id") or None
        function = part_of(piece, "function")
        name, arguments = text_of(function, "name") or None, text_of(function, "arguments")
        number = self._by_index.get(index) if isinstance(index, int) else self._unnumbered(call_id, name)
        if number is None or self._calls[number].is_followed_by(call_id, name):
            number = len(self._calls)
            self._calls.append(_Call(call_id, name))
            if isinstance(index, int):
                self._by_index[index] = number
        call = self._calls[number]
        call.call_id = call.call_id or call_id
        if arguments:
            call.arguments.append(arguments)
        return number

    def _unnumbered(self, call_id: str | None, name: str | None) -> int | None:
        """A call by its id; else a name begins one, and anything else goes on with the last."""
        found = next((place for place, call in enumerate(self._calls) if call_id and call.call_id == call_id), None)
        return found if found is not None or name or not self._calls else len(self._calls) - 1


def is_whole(arguments: list[str]) -> bool:
    """Whether nothing can follow: a call that was overtaken by another one may still go on."""
    return decode_object("".join(arguments).encode()) is not None
