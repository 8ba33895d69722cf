"""A batch's input, line by line, and its output lines: OpenAI's JSONL. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from backends.formats.json_objects import NOT_JSON, Fields, decode_object, on_one_line, part_of
from gateway.batches.values import LineProblem, LineResult, Tokens

EXPIRED_CODE: Final = "batch_expired"
EXPIRED: Final = "The batch's completion window ended before this request was answered."
NO_TOKENS: Final = Tokens()
MOST_PROBLEMS: Final = 20
"""Reported per file."""
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Line(msgspec.Struct, frozen=True):
    """One request of a batch. `number` is its line in the file, from 1; `body` is in the endpoint's format."""

    number: int
    custom_id: str
    body: bytes


class _Written(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Body(msgspec.Struct):
    model: str
    stream: bool | None = None


class LineTooLong(Exception):
    """`problem` says where."""

    def __init__(self, problem: LineProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Lines:
    """Splits data that arrives in parts into lines. Blank lines are counted and skipped."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest = b""
        self._number = 0

    def feed(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields the lines that end in this part, with their numbers. Raises LineTooLong for a line above `most_bytes`,
        even before its end."""
        *whole, self._rest = (self._rest + part).split(b"\n")
        yield from self._told(whole)
        self._require_length(self._rest, self._number + 1)

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Yields a last line without a newline."""
        yield from self._told([self._rest])
        self._rest = b""

    def _told(self, lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
        for line in lines:
            self._number += 1
            self._require_length(line, self._number)
            text = line.removeprefix(BYTE_ORDER_MARK) if self._number == 1 else line
            if text.strip():
                yield self._number, text

    def _require_length(self, line: bytes, number: int) -> None:
        if len(line) > self._most_bytes:
            why = f"A line may have at most {self._most_bytes:,} bytes (server.max_body_megabytes in breakeven.yaml)."
            raise LineTooLong(LineProblem("line_too_long", why, number))


def parse_line(number: int, text: bytes, endpoint: str) -> Line | LineProblem:
    """The request in a line for `endpoint`, or what is wrong with it."""
    try:
        written = msgspec.json.decode(text, type=_Written)
        body = msgspec.json.decode(written.body, type=_Body)
    except msgspec.ValidationError as error:
        why = f"{error}: a line needs custom_id, method, url and body, and the body needs a model"
        return LineProblem("invalid_line", why, number)
    except NOT_JSON as error:
        return LineProblem("invalid_json_line", f"This line is not valid JSON: {error}.", number)
    if not written.custom_id:
        return LineProblem("missing_required_parameter", "custom_id is empty.", number, "custom_id")
    if written.method != "POST":
        return LineProblem("invalid_method", f"method must be POST, not {written.method[:20]!r}.", number, "method")
    if written.url != endpoint:
        why = f"url must be the batch's endpoint {endpoint}, not {written.url[:100]!r}."
        return LineProblem("invalid_url", why, number, "url")
    if body.stream:
        why = "A batch cannot stream its answers: leave out stream."
        return LineProblem("stream_not_supported", why, number, "stream")
    return Line(number, written.custom_id, bytes(written.body))


class Check:
    """Checks a whole file before its first request is asked."""

    def __init__(self, endpoint: str, *, most_lines: int) -> None:
        self._endpoint = endpoint
        self._most_lines = most_lines
        self._seen: set[str] = set()
        self._problems: list[LineProblem] = []
        self.total = 0

    def look(self, number: int, text: bytes) -> None:
        """Checks the next line."""
        self.total += 1
        if self.total == self._most_lines + 1:
            why = f"A batch may have at most {self._most_lines:,} requests (batches.max_requests in breakeven.yaml)."
            self._note(LineProblem("too_many_requests", why, number))
        if self.total > self._most_lines:
            return  # nor kept in memory
        found = parse_line(number, text, self._endpoint)
        if isinstance(found, LineProblem):
            self._note(found)
        elif found.custom_id in self._seen:
            why = f"The custom_id {found.custom_id[:100]!r} is already used in an earlier line."
            self._note(LineProblem("duplicate_custom_id", why, number, "custom_id"))
        else:
            self._seen.add(found.custom_id)

    def end(self) -> tuple[LineProblem, ...]:
        """The problems found, after the last line."""
        if not self.total:
            self._note(LineProblem("empty_file", "The file has no requests."))
        return tuple(self._problems)

    def _note(self, problem: LineProblem) -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(problem)


def answered(
    line: Line, status: int, request_id: str, body: bytes, *, cost_pico_usd: int | None, model: str | None = None
) -> LineResult:
    """The result of a line that was asked; `body` is an error's if the status is not a success."""
    response = {"status_code": status, "request_id": request_id, "body": _told(body)}
    is_error = status >= 300
    tokens = NO_TOKENS if is_error else tokens_of(decode_object(body) or {})
    result = _result(line, response, None, is_error=is_error, tokens=tokens, cost_pico_usd=cost_pico_usd)
    return msgspec.structs.replace(result, model=model)


def expired(line: Line) -> LineResult:
    """The result of a line not asked, or not answered, in time."""
    result = _result(line, None, {"code": EXPIRED_CODE, "message": EXPIRED}, is_error=True)
    return msgspec.structs.replace(result, is_expired=True)


def _result(
    line: Line,
    response: Mapping[str, Any] | None,
    error: Mapping[str, str] | None,
    *,
    is_error: bool,
    tokens: Tokens = NO_TOKENS,
    cost_pico_usd: int | None = None,
) -> LineResult:
    fields = {"id": f"batch_req_{line.number}", "custom_id": line.custom_id, "response": response, "error": error}
    return LineResult(line.number, on_one_line(msgspec.json.encode(fields)) + b"\n", is_error, tokens, cost_pico_usd)


def _told(body: bytes) -> msgspec.Raw | str:
    """The body as it came, on one line: JSON strings contain no raw newlines, so a blank can replace them. As text if
    it is not JSON."""
    if decode_object(body) is None:
        return body.decode("utf-8", "replace")
    return msgspec.Raw(body.replace(b"\r", b" ").replace(b"\n", b" "))


def tokens_of(body: Fields) -> Tokens:
    """Usage as reported in a chat, completion, response or embedding."""
    usage = part_of(body, "usage")
    read = part_of(usage, "prompt_tokens_details") or part_of(usage, "input_tokens_details")
    written = part_of(usage, "completion_tokens_details") or part_of(usage, "output_tokens_details")
    return Tokens(
        _count(usage, "prompt_tokens") or _count(usage, "input_tokens"),
        _count(read, "cached_tokens"),
        _count(usage, "completion_tokens") or _count(usage, "output_tokens"),
        _count(written, "reasoning_tokens"),
    )


def _count(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
