"""Renders chat templates in a separate process, with limits on time and memory: a model's folder may be untrusted, and
no sandbox within a process stops a loop, or a text that keeps doubling, before it exhausts the machine.

Run as a module, this is that process. Knows no tokens.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any, Final, cast

from local_engine.bounds import bound, environment
from local_engine.errors import EngineError, InvalidRequest
from local_engine.text.chat_template import ChatTemplate
from local_engine.text.tool_formats import ToolFormat

CPU_SECONDS: Final = 10
"""A conversation of maximum size, in a hundred thousand messages, takes a few."""
MEMORY_BYTES: Final = 1 << 30
MOST_CHARACTERS: Final = 1 << 25
"""Twice the longest body: tokenizing longer texts would take minutes."""
STOPPED: Final = (
    f"The model's chat template was stopped: for these messages it takes more than {CPU_SECONDS} seconds of computing, "
    f"or {MEMORY_BYTES >> 30} GB of memory."
)
TOO_LONG: Final = f"The model's chat template makes more than {MOST_CHARACTERS} characters of these messages."
OUT_OF_MEMORY: Final = 3
"""Exit status of a process that ran out of memory."""
LENGTH_BYTES: Final = 8


class BoundedTemplate:
    """Equivalent to the given `ChatTemplate`. Thread-safe: one conversation is rendered at a time."""

    def __init__(self, template: ChatTemplate) -> None:
        """Starts the process; the first rendering waits for it."""
        source, tool_source, names, calls = template.parts
        self._parts = {"source": source, "tool_source": tool_source, "names": names, "calls": asdict(calls)}
        self._rendering = threading.Lock()
        self._process = self._begin()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """As `ChatTemplate.render`; also raises InvalidRequest for messages that took the process beyond its limits."""
        asked = {"messages": messages, "tools": tools, "extra": extra}
        with self._rendering:
            if self._process.poll() is not None:
                self._process = self._begin()
            told = self._told(asked)
        if "text" not in told:
            raise InvalidRequest(told["refusal"], parameter=told["parameter"])
        return told["text"]

    @property
    def process_id(self) -> int:
        """Id of the process that renders next, unless it ends."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _begin(self) -> "subprocess.Popen[bytes]":
        # In a session of its own: Ctrl-C is for the engine, which still finishes its answers.
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=environment(),
            )
        except OSError as error:
            raise EngineError(f"No process can be started for the chat template ({error.strerror}).") from error
        _write(cast(IO[bytes], process.stdin), self._parts)
        return process

    def _told(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            _write(cast(IO[bytes], self._process.stdin), asked)
            told = _read(cast(IO[bytes], self._process.stdout))
        except BrokenPipeError:
            told = None
        if told is None:
            self._process.communicate()
            if (status := self._process.returncode) in (OUT_OF_MEMORY, -signal.SIGXCPU):
                raise InvalidRequest(STOPPED, parameter="messages")
            raise EngineError(f"The process that renders the chat template ended with status {status}.")
        return told


def _write(pipe: IO[bytes], value: Any) -> None:
    # Lone surrogates, which other JSON writers reject, are written as escapes.
    body = json.dumps(value).encode()
    pipe.write(len(body).to_bytes(LENGTH_BYTES) + body)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """What was written, None if the writer is gone."""
    length = int.from_bytes(pipe.read(LENGTH_BYTES))
    return json.loads(pipe.read(length)) if length else None


def _render_all() -> None:
    """Renders incoming conversations until the pipe closes; the system ends this process if it exceeds its limits."""
    bound(resource.RLIMIT_CORE, 0)
    bound(resource.RLIMIT_AS, MEMORY_BYTES)
    _bound_time()
    parts = _read(sys.stdin.buffer)
    template = ChatTemplate(parts["source"], parts["tool_source"], parts["names"], ToolFormat(**parts["calls"]))
    while (asked := _read(sys.stdin.buffer)) is not None:
        _bound_time()
        _write(sys.stdout.buffer, _rendered(template, asked))


def _bound_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    bound(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS)


def _rendered(template: ChatTemplate, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        text = template.render(asked["messages"], tools=asked["tools"], extra=asked["extra"])
    except InvalidRequest as refusal:
        return {"refusal": str(refusal), "parameter": refusal.parameter}
    return {"text": text} if len(text) <= MOST_CHARACTERS else {"refusal": TOO_LONG, "parameter": "messages"}


if __name__ == "__main__":
    try:
        _render_all()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
