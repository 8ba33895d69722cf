"""Assigns the tool call pieces of a chat stream to calls, however a provider uses `index`, and tells when a call is
complete. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from backends.endpoints.chat_text import arguments_in
from backends.formats.json_objects import Fields, decode_object, integer, part_of, text_of
from backends.http.stream_reader import MOST_CALLS

_MARKS: Final = re.compile(r'\\.?|["{}]', re.DOTALL)


class EndlessAnswer(ValueError):
    """The answer has more calls or other parts than can be remembered: a piece of a few bytes takes a thousand."""


class _Call:
    """One call under construction. The end of its arguments is searched for incrementally: parsing all of them again
    for each piece took quadratic time."""

    def __init__(self, call_id: str | None, name: str | None) -> None:
        self.call_id = call_id
        self.name = name
        self.is_whole = self.is_told = False
        self._arguments: list[str] = []
        self._escape = ""
        self._is_in_text = self._has_ended = False
        self._depth = 0

    def told(self) -> Fields:
        """The call as far as it has come, as one piece."""
        self.is_told = True
        return {"id": self.call_id, "function": {"name": self.name, "arguments": "".join(self._arguments)}}

    def add(self, arguments: str) -> None:
        self._arguments.append(arguments)
        if self._has_ended:
            self.is_whole = self.is_whole and not arguments.strip()
            return
        read = self._escape + arguments
        self._escape = ""
        for mark in _MARKS.finditer(read):
            if mark[0] == "\\":  # the escaped character is in the next piece
                self._escape = "\\"
            elif mark[0] == '"':
                self._is_in_text = not self._is_in_text
            elif not self._is_in_text and mark[0] in "{}":
                self._depth += 1 if mark[0] == "{" else -1
                if self._depth <= 0:
                    self._has_ended = True
                    self.is_whole = decode_object("".join(self._arguments).encode()) is not None
                    return

    def is_followed_by(self, call_id: str | None, name: str | None) -> bool:
        """Whether a piece with the same index begins another call: it has another id or, without ids, another name, or
        follows complete arguments."""
        if not name:
            return False
        if call_id:
            return self.call_id is not None and call_id != self.call_id
        if not self._arguments or self.name is None:  # the name comes late
            return False
        return name != self.name or (self.call_id is None and self.is_whole)


class ToolCallNumbers:
    """Numbers the calls of one answer from 0 in the order in which they begin. Takes every piece in order.

    OpenAI increments `index`. Others omit it, skip numbers, or send 0 for every call: then a piece with a name, and
    with a new id or none, begins a call. Raises EndlessAnswer.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}

    def number(self, piece: Mapping[str, object]) -> int:
        index, call_id = integer(piece, "index"), text_of(piece, "id") or None
        function = part_of(piece, "function")
        name, arguments = text_of(function, "name") or None, arguments_in(function)
        number = self._by_index.get(index) if index is not None else self._unnumbered(call_id, name)
        if number is None or self._calls[number].is_followed_by(call_id, name):
            number = len(self._calls)
            if number >= MOST_CALLS:
                raise EndlessAnswer
            self._calls.append(_Call(call_id, name))
            if index is not None:
                self._by_index[index] = number
        call = self._calls[number]
        call.call_id, call.name = call.call_id or call_id, call.name or name
        if call.call_id:
            self._by_id.setdefault(call.call_id, number)
        if arguments:
            call.add(arguments)
        return number

    def named(self, piece: Fields) -> tuple[int, Fields] | None:
        """The call's number and the piece. None as long as the call has no name, which some providers send after the
        id or even the arguments; then all that came of it, as one piece."""
        number = self.number(piece)
        call = self._calls[number]
        if call.name is None:
            return None
        return number, piece if call.is_told else call.told()

    def is_whole(self, number: int) -> bool:
        """Whether the call's arguments are complete. If not, it may continue even after another call has begun."""
        return self._calls[number].is_whole

    def _unnumbered(self, call_id: str | None, name: str | None) -> int | None:
        """The call of a piece without an index: by its id, else the last one; None if a name begins a new one."""
        found = self._by_id.get(call_id) if call_id else None
        if found is not None or not self._calls:
            return found
        last = self._calls[-1]
        is_new = name and (last.name is not None or (call_id and last.call_id))
        return None if is_new else len(self._calls) - 1
