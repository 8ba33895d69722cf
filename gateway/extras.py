"""Whether an optional part is installed, and the command that does it, worded the same everywhere. Knows none of the
parts."""

import shlex
import sys
from importlib.util import find_spec


def is_installed(module: str) -> bool:
    """Looks for it without importing it, which may take seconds."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing too
        return False


def install_command(extra: str) -> str:
    """For the Python that runs Breakeven: any other would look the package up on an index and install whatever has that
    name there."""
    return command_for(sys.executable, extra, has_pip=is_installed("pip"))


def command_for(python: str, extra: str, *, has_pip: bool) -> str:
    """Uses the environment's own pip, or uv's: environments created by uv have no pip."""
    named = shlex.quote(python)
    installs = f"{named} -m pip install" if has_pip else f"uv pip install --python {named}"
    return f"{installs} 'breakeven[{extra}]'"


def missing_here(extra: str) -> str:
    """The same for readers who may be on another machine: local paths are shown only on this one."""
    return f"the extra {extra!r} is not installed where Breakeven runs, and `breakeven doctor` there says how to add it"
