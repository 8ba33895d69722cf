"""Decodes the events of one chat's stream, those that only go on with a text together. No IO, no clock.

Nearly all events of an answer differ from the one before in nothing but their piece of text. What has the bytes of an
event that was decoded, except for that piece, is not decoded again: the pieces that came together are read as one text.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from backends.formats.openai_events import ChatEvent, Text

BETWEEN: Final = b"\n\ndata: "
_EVENT: Final = msgspec.json.Decoder(ChatEvent)
_TEXT: Final = msgspec.json.Decoder(str)
_FEW: Final = 6
"""Fewer lines are decoded at once: to compare them costs as much, and to learn how they are alike more."""
_TRIALS: Final = 4
"""In vain, before all events of a stream are taken to differ, as OpenAI's with `obfuscation`."""
_MOST_BYTES: Final = 1 << 18
"""Of lines that are compared, which copies them. Pictures of 40 MB come in one event."""


class TextRuns:
    """Of one stream."""

    __slots__ = ("_end", "_event", "_name", "_said", "_start", "_trials")

    def __init__(self) -> None:
        self._event: ChatEvent | None = None
        """Says one text; its bytes are `_start`, that text as JSON writes it, and `_end`."""
        self._said = Text()
        self._name = ""
        self._start = self._end = b""
        self._trials = _TRIALS

    def decode(self, lines: Sequence[bytes]) -> tuple[Sequence[ChatEvent], Sequence[bytes]]:
        """The events, and the line of each. Those that only go on with a text are one, which the next call changes, and
        one line, with BETWEEN between theirs. No line may have line ends.

        Raises as msgspec's decoder; the lines may then be decoded again, in other groups.
        """
        if len(lines) < _FEW or sum(map(len, lines)) > _MOST_BYTES:
            return _decoded(lines), lines
        first: list[ChatEvent] = []
        for line in lines:
            if self._event is not None or not self._trials:
                break
            first.append(_EVENT.decode(line))
            self._learn(first[-1], line)
        begin = len(first)
        going_on = self._going_on(lines[begin:])
        if self._event is None or not going_on:
            return first + _decoded(lines[begin:]), lines
        rest = lines[begin + len(going_on) :]
        return [*first, self._event, *_decoded(rest)], [*lines[:begin], BETWEEN.join(going_on), *rest]

    def _learn(self, event: ChatEvent, line: bytes) -> None:
        """Remembers the event if it tells nothing but one text, and this is where: another one there changes it."""
        self._trials -= 1
        said = _said(event)
        if said is None or b'"usage"' in line:  # which a caller may not get to see
            return
        name = "content" if said.content else "reasoning_content" if said.reasoning_content else "reasoning"
        text = getattr(said, name)
        if not isinstance(text, str):
            return
        begin = line.find(b'"', line.find(b'"%b"' % name.encode()) + len(name) + 2) + 1
        written = text.encode()
        start, end = line[:begin], line[begin + len(written) :]
        try:
            other = _EVENT.decode(b"%b%b!%b" % (start, written, end))
        except msgspec.DecodeError:
            return
        changed = _said(other)
        if changed is not None and getattr(changed, name) == text + "!":
            setattr(changed, name, "")
            if changed.output() == (False, 0):
                self._event, self._said, self._name, self._start, self._end = other, changed, name, start, end

    def _going_on(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The next lines whose events only go on with the text; the event then has theirs."""
        if self._event is None:
            return ()
        start, end, count = self._start, self._end, len(lines)
        while count and not lines[count - 1].endswith(end):
            count -= 1
        lines = lines[:count]
        first, last = len(start), -len(end)
        texts = [line[first:last] for line in lines]
        if not lines or start + (end + start).join(texts) + end != b"".join(lines):
            self._event = None
            return ()
        try:
            # With a blank between the pieces, so that none ends amid an escape or a character.
            _TEXT.decode(b'"%b"' % b" ".join(texts))
            text = _TEXT.decode(b'"%b"' % b"".join(texts))
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._event = None
            return ()
        setattr(self._said, self._name, text)
        self._trials = _TRIALS
        return lines


def _said(event: ChatEvent) -> Text | None:
    """What an event says that tells nothing else."""
    if event.kind == "error" or (event.error is not None and event.is_failure) or not event.choices:
        return None
    if event.usage is not None or event.x_groq or event.x_breakeven:
        return None
    choice = event.choices[0]
    text = choice.delta
    is_text_alone = len(event.choices) == 1 and not choice.finish_reason and choice.usage is None
    return text if is_text_alone and text is not None and not text.executed_tools else None


def _decoded(lines: Sequence[bytes]) -> list[ChatEvent]:
    """Raises msgspec.DecodeError unless each line is one event."""
    events = _EVENT.decode_lines(b"\n".join(lines))
    if len(events) != len(lines):
        raise msgspec.DecodeError("a line is no document")
    return events
