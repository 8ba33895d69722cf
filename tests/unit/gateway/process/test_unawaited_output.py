"""A pipe whose reader has stopped reading holds about 64 KB; further writes block."""

import contextlib
import io
import logging
import os
import select
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from uvicorn.logging import AccessFormatter, DefaultFormatter

from gateway.process.unawaited_output import unawaited_output

MORE_THAN_A_PIPE = 100_000


@contextlib.contextmanager
def output_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """The reading end of a pipe for both streams. No fixture, because pytest replaces both streams when a test
    begins."""
    reading, written = os.pipe()
    with open(written, "w", encoding="utf-8") as text, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", text)
        patch.setattr(sys, "stderr", text)
        with unawaited_output():
            yield reading
    with contextlib.suppress(OSError):
        os.close(reading)


def read(pipe: int) -> bytes:
    """The next data; a minute without any is an error."""
    assert select.select((pipe,), (), (), 60)[0], "nothing came"
    return os.read(pipe, 65_536)


def test_nobody_waits_for_a_reader_and_what_it_missed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with output_into_a_pipe(monkeypatch) as pipe:
        handler = logging.StreamHandler()
        for number in range(8 * MORE_THAN_A_PIPE // 100):
            handler.emit(logging.LogRecord("test", 30, "", 0, f"line {number} ".ljust(99, "."), None, None))
        said = read(pipe)
        assert said.startswith(b"line 0 ")
        while b"read them)\n" not in said:
            print("said since")  # until there is room
            said += read(pipe)
    assert next(line for line in said.splitlines() if b"missing" in line).endswith(
        b" lines are missing here: nobody read them)"
    )


def test_last_words_are_waited_for_where_somebody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with output_into_a_pipe(monkeypatch) as pipe:
        print("to the one")
        print("to the other", file=sys.stderr)
        said = read(pipe)
        while not said.endswith(b"other\n"):
            said += read(pipe)
    assert said == b"to the one\nto the other\n", "in their order"


def test_an_end_waits_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stdout", log)
        with unawaited_output():
            print("x" * MORE_THAN_A_PIPE, end="")
        assert (tmp_path / "log").stat().st_size == MORE_THAN_A_PIPE


def test_a_reader_that_left_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    with output_into_a_pipe(monkeypatch) as pipe:
        os.close(pipe)
        print("to nobody")
        print("x" * MORE_THAN_A_PIPE)


def test_whoever_shares_a_terminal_and_made_it_impatient_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with output_into_a_pipe(monkeypatch) as pipe:
        os.set_blocking(sys.stdout.fileno(), False)
        print("x" * MORE_THAN_A_PIPE, end="end")
        said = read(pipe)
        while not said.endswith(b"end"):
            said += read(pipe)
    assert len(said) == MORE_THAN_A_PIPE + 3


def test_a_stream_that_is_none_of_the_systems_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    with unawaited_output():
        assert sys.stdout is stream


def test_who_began_with_closed_output_has_loggers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """`breakeven serve >&- 2>&- &` ended at once, and could not say why: the server's loggers do not accept None."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with unawaited_output():
        DefaultFormatter()
        AccessFormatter()
        print("nobody hears this")
    assert sys.stdout is None
