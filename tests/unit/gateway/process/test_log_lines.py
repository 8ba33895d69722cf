"""A log line, for people and for programs."""

import json
import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from gateway.errors import ConfigurationError
from gateway.process.log_lines import set_up_log


@contextmanager
def log_of(environ: dict[str, str]) -> Generator[None]:
    """The log of a process that has just started: the root logger has none of the test's handlers."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        set_up_log(environ)
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_a_line_for_people_says_when_by_their_clock_and_who(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with log_of({}):
        logging.getLogger("gateway.x").warning("the disk is %s", "full")
        logging.getLogger("gateway.x").info("not worth a line")
        logging.getLogger("a library").warning(["no", "text"])
    line, other = capsys.readouterr().err.splitlines()
    expected = (
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}[+-]\d\d:\d\d WARNING {os.getpid()} gateway\.x: the disk is full"
    )
    assert re.fullmatch(expected, line)
    assert other.endswith(" a library: ['no', 'text']")


def test_a_line_for_programs_is_one_object_whatever_is_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with log_of({"BREAKEVEN_LOG_FORMAT": "json"}):
        try:
            raise RuntimeError("on\ntwo lines")
        except RuntimeError:
            logging.getLogger("gateway.x").exception('said "%s"', "a\nb \ud800")
    [line] = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["level"], found["logger"], found["process"]) == ("ERROR", "gateway.x", os.getpid())
    assert found["message"] == 'said "a\nb \ud800"'
    assert "RuntimeError: on\ntwo lines" in found["exception"]
    assert found["time"].endswith("+00:00")


def test_lines_of_one_kind_are_bounded_by_the_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway without file descriptors logged each of the 16,000 requests that it refused in a minute."""

    def at(second: float, *values: object) -> None:
        record = logging.LogRecord("gateway.x", logging.WARNING, __file__, 1, "%s: no (request %s)", values, None)
        record.created = 1_790_000_040.0 + second
        logging.getLogger("gateway.x").handle(record)

    with log_of({}):
        for number in range(1000):
            at(number / 20, "Refused", number)
        at(50, "Down", 1)
        at(60, "Refused", 1000)
    lines = [line.partition("gateway.x: ")[2] for line in capsys.readouterr().err.splitlines()]
    last = "Refused: no (request 59); further lines like this one are left out until the minute is over"
    assert lines[58:] == ["Refused: no (request 58)", last, "Down: no (request 1)", "Refused: no (request 1000)"]


def test_a_format_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="BREAKEVEN_LOG_FORMAT is 'xml'; it takes text or json"):
        set_up_log({"BREAKEVEN_LOG_FORMAT": "xml"})
