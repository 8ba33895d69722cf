"""Format of log lines: text for people or, if BREAKEVEN_LOG_FORMAT says so, JSON for programs."""

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.errors import ConfigurationError

VARIABLE: Final = "BREAKEVEN_LOG_FORMAT"


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


def set_up_log(environ: Mapping[str, str] = os.environ) -> None:
    """Logging of this process to standard error. Raises ConfigurationError for an unknown format."""
    name = environ.get(VARIABLE) or "text"
    if name not in FORMATS:
        raise ConfigurationError(f"{VARIABLE} is {name!r}; it takes {' or '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[name]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
