"""Reads prompts as JSON lines, one at a time with line numbers; knows no field but `prompt`."""

import codecs
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

STANDARD: Final = Path("-")
"""What users of pipes write for standard input and output."""


class PromptFileError(Exception):
    """A line of the prompt file cannot be used; the message names the file and the line."""


def read_prompt_lines(source: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers from 1 and objects with a `prompt` string; empty lines and a byte order mark are skipped."""
    name = "standard input" if source == STANDARD else str(source)
    # Bytes: only a line feed ends a line, and invalid text can be located.
    with nullcontext(sys.stdin.buffer) if source == STANDARD else source.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.strip():
                yield number, _parse(line, f"{name}:{number}")


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{where} is not UTF-8 (byte {error.start}): save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise PromptFileError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
        raise PromptFileError(f"{where} needs a `prompt` string")
    return row
