"""Finds tool calls in streaming text, in each family's format: after a mark, or as plain JSON (Llama 3, Gemma).

Hermes, Qwen and SmolLM3 write tags around each call. Mistral's mark is followed by a JSON list of calls or, in later
models, each `name[ARGS]{...}` has its own mark; Granite's and Phi's by a list; DeepSeek's by calls between marks, with
fenced arguments. Llama's calls are separated by semicolons, and have a mark if text precedes them. Qwen3-Coder's tags
enclose a function with a tag per argument, typed by the tool's schema; the outer one may be missing. Unmarked JSON and
unmarked functions are calls only if they name an existing tool: an answer may be an object with a name, too.

A call of a known tool begins with the first key of its arguments and stays one whatever follows: the arguments are
streamed as they are written. Other calls are reported once complete. What turns out to be no call is text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from local_engine.text.answer_text import overlap
from local_engine.text.json_span import JsonSpan
from local_engine.text.tagged_arguments import read_tagged
from local_engine.text.tool_marks import (
    CLOSE,
    CLOSES,
    DEEPSEEK,
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_NAME,
    FUNCTION_CLOSE,
    FUNCTION_OPEN,
    LLAMA,
    MARKS,
    MISTRAL,
    MISTRAL_ARGUMENTS,
    MISTRAL_ID,
    PARAMETER_OPEN,
)

# A list's bracket is followed by a call; Mistral's mark begins with a bracket, too.
BETWEEN: Final = re.compile(rf"(?:[\s,;\]`]|\[(?=[\s{{])|{DEEPSEEK_CALL_END})*")
# Behind the last call of a list.
LIST_END: Final = re.compile(r"\s*\]")
# Without a mark a list is no call.
BETWEEN_UNMARKED: Final = re.compile(r"[\s;`]*")
# Around unmarked JSON, as Qwen2.5-Coder and Gemma often write it.
FENCE: Final = re.compile(r"\s*```(?:json)?\s*(?=\{)")
FENCE_BEGUN: Final = re.compile(r"\s*(?:`{1,2}|```(?:j|js|jso|json\s*|\s*))")
FENCE_END: Final = re.compile(r"\s*```")
FUNCTION_END: Final = re.compile(f"{re.escape(FUNCTION_CLOSE)}|{re.escape(CLOSE)}")
STRING: Final = r'"((?:[^"\\]|\\.)*)"'
KEY: Final = re.compile(rf"\{{\s*{STRING}", re.DOTALL)
# Before arguments that begin like an object.
BEGUN: Final = rf"(?=\{{\s*(?:\}}|{STRING}\s*:))"
HEAD: Final = re.compile(rf'\{{\s*"name"\s*:\s*{STRING}\s*,\s*"(?:arguments|parameters)"\s*:\s*{BEGUN}', re.DOTALL)
WRAP: Final = re.compile(rf"(?:,\s*{STRING}\s*:\s*{STRING}\s*)*\}}", re.DOTALL)
# The model's own id is dropped.
NAMED: Final = rf"([^\s\[\]{{}}]+)\s*(?:{re.escape(MISTRAL_ID)}[^\[\]{{}}]*)?{re.escape(MISTRAL_ARGUMENTS)}\s*"
# Later DeepSeek models omit both `function` and the fence's language.
FENCED: Final = rf"{DEEPSEEK_CALL}(?:function{DEEPSEEK_NAME})?([^\s<>{{}}]+)(?:{DEEPSEEK_NAME})?\s*(?:```(?:json)?)?\s*"
# By mark, for calls whose name precedes their arguments.
NAMED_HEADS: Final = {MISTRAL: re.compile(NAMED), DEEPSEEK: re.compile(rf"{FENCED}(?=\{{)")}
NAMED_BEGUN: Final = {MISTRAL: re.compile(NAMED + BEGUN, re.DOTALL), DEEPSEEK: re.compile(FENCED + BEGUN, re.DOTALL)}
MAYBE_NAMED: Final = {
    MISTRAL: re.compile(r"[^\s\[\]{}]{1,128}\s*(?:\[[A-Z_]*(?:\][^\[\]{}]{0,64}(?:\[[A-Z]*)?)?)?"),
    DEEPSEEK: re.compile(rf"{DEEPSEEK_CALL}[^{{}}]{{0,256}}"),
}
CALL_KEYS: Final = ("name", "arguments", "parameters", "type", "id")
# No head is longer, so a long text is not rescanned from its beginning with every token.
LONGEST_HEAD: Final = 1024
# A complete answer is read in pieces: otherwise its remainder would be copied with every call.
PIECE: Final = 1024


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A call of this function begins. Mistral's templates accept only ids of nine characters."""

    name: str
    has_short_id: bool = False


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the last call's arguments, as JSON text; the piece with `ends` is the last."""

    text: str
    ends: bool = False


Piece = str | CallBegins | CallArguments


class FunctionSpan:
    """Finds the end of a tagged function, by its own closing tag or before the call's, scanning each character once."""

    def __init__(self) -> None:
        self.is_open = True
        self._at = 0

    def end(self, text: str, start: int = 0) -> int | None:
        """As `JsonSpan.end`."""
        found = FUNCTION_END.search(text, max(self._at, start))
        if found is None:
            self._at = max(0, len(text) - len(CLOSE))
            return None
        self.is_open = False
        return found.end() if found[0] == FUNCTION_CLOSE else found.start()


class ToolCallParser:
    """Splits an answer into plain text and calls, in order."""

    def __init__(
        self, names: Set[str], schemas: Mapping[str, Any] | None = None, *, takes_unmarked: bool = True
    ) -> None:
        """`names` are those of the tools, `schemas` their parameters."""
        self._names = names
        self._schemas = schemas or {}
        self._held = ""
        # In text: whether only blanks came since the beginning, or since a call.
        self._is_blank = True
        self._may_be_unmarked = takes_unmarked and bool(names)
        # Qwen3-Coder often omits the mark before a function.
        self._begins = (*MARKS, FUNCTION_OPEN) if self._may_be_unmarked else MARKS
        # The mark before calls, empty if there is none; None in text.
        self._mark: str | None = None
        # What was read since the last call; it is text if no other call follows.
        self._read = ""
        # An object that is not (yet) the beginning of a call, as far as scanned.
        self._object: JsonSpan | FunctionSpan | None = None
        self._arguments: JsonSpan | None = None
        self._told = 0
        self._list_end = LIST_END
        # After arguments: whether the object around them has yet to end.
        self._is_wrapped = False

    def push(self, text: str) -> list[Piece]:
        """What has become certain."""
        pieces: list[Piece] = []
        for at in range(0, len(text), PIECE):
            self._held += text[at : at + PIECE]
            pieces += self._advance(is_last=False)
        return pieces

    def finish(self) -> list[Piece]:
        """The rest, at the end of the answer."""
        return list(self._advance(is_last=True))

    def _advance(self, *, is_last: bool) -> Iterator[Piece]:
        before = ("", "", None, True)
        while before != (before := (self._held, self._mark, self._arguments, self._is_wrapped)):
            if self._arguments is not None:
                yield from self._argue(self._arguments, is_last=is_last)
            elif self._is_wrapped:
                self._unwrap(is_last=is_last)
            elif self._mark is not None:
                yield from self._look(self._mark, is_last=is_last)
            else:
                yield from self._say(is_last=is_last)

    def _say(self, *, is_last: bool) -> Iterator[Piece]:
        """Text up to a mark, or to what may become one."""
        if self._is_blank and not is_last and not self._held.strip():
            return
        if self._may_be_unmarked:
            if not is_last and FENCE_BEGUN.fullmatch(self._held):
                return
            self._may_be_unmarked = False
            if (at := _end_of(FENCE, self._held)) > 0:
                self._list_end = FENCE_END
            if self._held[at:].lstrip().startswith("{"):
                self._read, self._held, self._mark = self._held[:at], self._held[at:], ""
                return
        places = [(self._held.find(mark), mark) for mark in self._begins if mark in self._held]
        at, mark = min(places, default=(len(self._held), ""))
        end = at if mark or is_last else at - max(overlap(self._held, mark) for mark in self._begins)
        read = "" if mark == FUNCTION_OPEN else mark
        text, rest = self._held[:end], self._held[end + len(read) :]
        is_blank = self._is_blank and not text.strip()
        if is_blank and not mark and not is_last:
            return
        self._held, self._is_blank = rest, is_blank
        if mark:
            # Llama's mark means nothing to a reader. Blanks around calls are not text.
            self._mark, self._read = mark, (text if is_blank else "") + ("" if mark == LLAMA else read)
        if text and not (is_blank and (mark or self._told)):
            yield text

    def _look(self, mark: str, *, is_last: bool) -> Iterator[Piece]:
        """What follows a mark: a call, another mark, or text."""
        between = BETWEEN if mark else BETWEEN_UNMARKED
        at = _end_of(between, self._held)
        self._read, self._held = self._read + self._held[:at], self._held[at:]
        rest = self._held
        found = next((known for known in (*CLOSES, *MARKS) if rest.startswith(known)), None)
        is_idle = self._told > 0 and _end_of(between, self._read) == len(self._read)
        if is_last and mark and is_idle and any(close.startswith(rest) for close in CLOSES):
            # Cut off within the mark that would have ended the call.
            rest = self._held = ""
        if found is not None and is_idle:
            self._held = rest.removeprefix(found)
            self._mark, self._read, self._is_blank = (None if found in CLOSES else found), "", True
        elif (call := self._next_call(rest, mark, is_last=is_last)) is not None:
            yield from call
        elif is_last or not self._may_become_call(rest, mark):
            text = self._read[_end_of(self._list_end, self._read) :] if is_idle else self._read
            self._read, self._mark, self._object = "", None, None
            self._is_blank = False
            if mark == FUNCTION_OPEN and rest.startswith(mark):
                text, self._held = text + mark, rest.removeprefix(mark)
            if text and (rest or not is_idle):
                yield text

    def _next_call(self, rest: str, mark: str, *, is_last: bool) -> list[Piece] | None:
        """A call that begins here: with its arguments yet to come or, in other formats, complete."""
        is_short = mark == MISTRAL
        wrapped = HEAD.match(rest, 0, LONGEST_HEAD) if self._object is None or len(rest) < LONGEST_HEAD else None
        begun = wrapped or (NAMED_BEGUN[mark].match(rest, 0, LONGEST_HEAD) if mark in NAMED_BEGUN else None)
        name = None if begun is None else _parse(f'"{begun[1]}"') if wrapped else begun[1]
        if begun is not None and name in self._names:
            self._begin(rest[begun.end() :])
            self._arguments, self._is_wrapped = JsonSpan(), wrapped is not None
            return [CallBegins(str(name), has_short_id=is_short)]
        if mark == FUNCTION_OPEN and not self._may_be_function(rest):
            return None
        whole, end = self._whole(rest, mark, is_last=is_last)
        if whole is None or (not mark and whole.name not in self._names):
            return None
        self._begin(rest[end:])
        return [CallBegins(whole.name, has_short_id=is_short), CallArguments(whole.arguments, ends=True)]

    def _begin(self, rest: str) -> None:
        self._held, self._read, self._object = rest, "", None
        self._told += 1

    def _whole(self, rest: str, mark: str, *, is_last: bool) -> tuple[ToolCall | None, int]:
        """A complete call, and where it ends."""
        if rest.startswith("{"):
            end = self._object_end(rest)
            return (None, 0) if end is None else (parse_call(rest[:end]), end)
        if rest.startswith(FUNCTION_OPEN):
            self._object = self._object or FunctionSpan()
            end = self._object.end(rest)
            end = len(rest) if end is None and is_last else end
            return (None, 0) if end is None else (parse_function(rest[:end], self._schemas), end)
        if mark in NAMED_HEADS and (named := NAMED_HEADS[mark].match(rest, 0, LONGEST_HEAD)) is not None:
            end = self._object_end(rest, named.end())
            arguments = "" if end is None else rest[named.end() : end]
            return (ToolCall(named[1], arguments), end or 0) if isinstance(_parse(arguments), dict) else (None, 0)
        return None, 0

    def _object_end(self, rest: str, start: int = 0) -> int | None:
        self._object = self._object or JsonSpan()
        return self._object.end(rest, start)

    def _may_become_call(self, rest: str, mark: str) -> bool:
        """Whether the text so far may still become a call."""
        if rest.startswith("{"):
            key = KEY.match(rest, 0, LONGEST_HEAD)
            is_possible = bool(mark) or key is None or key[1] in CALL_KEYS
            return is_possible and self._object is not None and self._object.is_open
        if rest.startswith(FUNCTION_OPEN):
            is_possible = mark != FUNCTION_OPEN or self._may_be_function(rest)
            return is_possible and self._object is not None and self._object.is_open
        if any(known.startswith(rest) for known in (*CLOSES, *MARKS, FUNCTION_OPEN, DEEPSEEK_CALL, DEEPSEEK_CALL_END)):
            return True
        if mark not in NAMED_HEADS:
            return False
        if (named := NAMED_HEADS[mark].match(rest, 0, LONGEST_HEAD)) is not None:
            begins = rest[named.end() : named.end() + 1]
            return begins in ("", "{") and self._object is not None and self._object.is_open
        return MAYBE_NAMED[mark].fullmatch(rest) is not None

    def _may_be_function(self, rest: str) -> bool:
        """Whether an unmarked function may be one of the tools, with a tag around each argument."""
        name, is_named, inside = rest[len(FUNCTION_OPEN) : LONGEST_HEAD].partition(">")
        if not is_named:
            return any(known.startswith(name) for known in self._names)
        follows = inside.lstrip()
        tags = (PARAMETER_OPEN, FUNCTION_CLOSE)
        return name in self._names and any(follows.startswith(tag) or tag.startswith(follows) for tag in tags)

    def _argue(self, span: JsonSpan, *, is_last: bool) -> Iterator[Piece]:
        """Arguments as they come. Anything that cannot be JSON ends them."""
        span.end(self._held)
        at = len(self._held) if is_last and span.is_open else span.at
        text, self._held = self._held[:at], self._held[at:]
        span.at = 0
        self._arguments = span if span.is_open else None
        if text or not span.is_open:
            yield CallArguments(text, ends=not span.is_open)

    def _unwrap(self, *, is_last: bool) -> None:
        """Skips the rest of the object around arguments, such as Mistral's ids."""
        rest = self._held.lstrip()
        if (wrap := WRAP.match(rest)) is not None:
            self._held, self._is_wrapped = rest[wrap.end() :], False
        elif is_last or len(rest) > LONGEST_HEAD or not ",".startswith(rest[:1]):
            self._is_wrapped = False


def _end_of(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return 0 if found is None else found.end()


def parse_call(text: str) -> ToolCall | None:
    """`{"name": ..., "arguments": {...}}`, or `parameters` as in Llama's; None for anything else."""
    raw = _parse(text)
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    # Some models write null, or an empty text, where a tool takes nothing.
    arguments = raw.get("arguments", raw.get("parameters")) or {}
    return ToolCall(_sendable(raw["name"]), _sendable(arguments) if isinstance(arguments, str) else _json(arguments))


def parse_function(text: str, schemas: Mapping[str, Any]) -> ToolCall | None:
    """`<function=name><parameter=key>value</parameter>...</function>`; values that are not strings by schema are JSON.

    Parsed in a single pass: a backtracking regular expression took minutes for an answer of blanks, blocking everyone.
    """
    name, found, inside = text.strip().removeprefix(FUNCTION_OPEN).partition(">")
    if not (text.lstrip().startswith(FUNCTION_OPEN) and name and found):
        return None
    arguments = read_tagged(inside.removesuffix(FUNCTION_CLOSE), schemas.get(name.strip()))
    return ToolCall(name.strip(), _sendable(arguments))


def _json(value: Any) -> str:
    return _sendable(json.dumps(value, ensure_ascii=False))


def _sendable(text: str) -> str:
    """Lone surrogates, which JSON can express but UTF-8 cannot, stay escaped."""
    return text.encode(errors="backslashreplace").decode()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
