"""The initial configuration and rules of a deployment: commented, written once, then edited by the operator."""

from importlib.resources import files
from pathlib import Path
from string import Template

from gateway.config.home import Home
from gateway.config.settings import EngineSettings
from gateway.errors import StateError
from gateway.whole_file import write_whole

_FIRST = files("gateway.config") / "first"
_OFF = ("  is_enabled: true\n", "  is_enabled: false         # it was not installed here at the first start\n")


def first_configuration(*, has_engine: bool = True) -> str:
    """The schema's defaults; the engine is switched off if it is not installed."""
    text = (_FIRST / "breakeven.yaml").read_text(encoding="utf-8")
    return text if has_engine else text.replace(*_OFF)


def first_rules(engine: EngineSettings) -> str:
    """Rules for the bundled engine and any hosted models."""
    text = (_FIRST / "rules.yaml").read_text(encoding="utf-8")
    return Template(text).substitute(name=engine.name, context_window=engine.context_window)


def write_first_files(home: Home, *, has_engine: bool = True) -> list[Path]:
    """Writes the initial configuration and rules where missing; returns the files written."""
    written: list[Path] = []
    for path, text in (
        (home.config_file, first_configuration(has_engine=has_engine)),
        (home.rules_file, first_rules(EngineSettings())),
    ):
        if path.exists():
            continue
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror}") from error
        written.append(path)
    return written
