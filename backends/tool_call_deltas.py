"""Which tool call a piece of a chat stream belongs to, whatever its provider makes of `index`. Pure."""

from collections.abc import Mapping

from backends.json_objects import decode_object, part_of, text_of


class ToolCallNumbers:
    """Numbers the calls of one answer from 0 in the order in which they begin. Feed it every piece in order.

    OpenAI counts `index` up. Others leave it out, leave numbers out, or send 0 for every call: then a piece that
    brings an id of its own and a name begins a call.
    """

    def __init__(self) -> None:
        self._ids: list[str | None] = []
        self._by_index: dict[int, int] = {}

    def number(self, piece: Mapping[str, object]) -> int:
        index, call_id = piece.get("index"), text_of(piece, "id") or None
        name = text_of(part_of(piece, "function"), "name")
        known = self._by_index.get(index) if isinstance(index, int) else self._unnumbered(call_id, name)
        if known is not None and not (name and call_id and call_id != (self._ids[known] or call_id)):
            self._ids[known] = self._ids[known] or call_id
            return known
        self._ids.append(call_id)
        number = len(self._ids) - 1
        if isinstance(index, int):
            self._by_index[index] = number
        return number

    def _unnumbered(self, call_id: str | None, name: str | None) -> int | None:
        """A call by its id; else a name begins one, and anything else goes on with the last."""
        if call_id is not None and call_id in self._ids:
            return self._ids.index(call_id)
        return None if name or not self._ids else len(self._ids) - 1


def is_whole(arguments: list[str]) -> bool:
    """Whether nothing can follow: a call that was overtaken by another one may still go on."""
    return decode_object("".join(arguments).encode()) is not None
