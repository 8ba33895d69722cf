"""Format of log lines: text for people or, if BREAKEVEN_LOG_FORMAT says so, JSON for programs."""

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.errors import ConfigurationError

VARIABLE: Final = "BREAKEVEN_LOG_FORMAT"
MOST_ALIKE: Final = 60


class TextLines(logging.Formatter):
    """With local time and UTC offset."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class JsonLines(logging.Formatter):
    """One JSON object per line, whatever the message contains; times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


FORMATS: Final[Mapping[str, type[logging.Formatter]]] = {"text": TextLines, "json": JsonLines}


class FewAlike(logging.Filter):
    """Lets through `MOST_ALIKE` lines of one kind a minute: a gateway that has to refuse everything, such as one out of
    file descriptors, would fill its log's disk. A kind is a message before its values are in it, and the first one if
    that is a text: what failed, or where."""

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._lines: Counter[tuple[str, str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        minute = int(record.created // 60)
        if minute != self._minute:
            self._minute = minute
            self._lines.clear()
        values = record.args
        first = values[0] if isinstance(values, tuple) and values and isinstance(values[0], str) else ""
        kind = (record.name, str(record.msg), first)  # libraries may log what has no hash
        self._lines[kind] += 1
        if self._lines[kind] == MOST_ALIKE:
            record.msg = f"{record.msg}; further lines like this one are left out until the minute is over"
        return self._lines[kind] <= MOST_ALIKE


def set_up_log(environ: Mapping[str, str] = os.environ) -> None:
    """Logging of this process to standard error. Raises ConfigurationError for an unknown format."""
    name = environ.get(VARIABLE) or "text"
    if name not in FORMATS:
        raise ConfigurationError(f"{VARIABLE} is {name!r}; it takes {' or '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[name]())
    handler.addFilter(FewAlike())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
