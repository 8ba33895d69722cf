"""The command that installs a missing optional part, worded the same everywhere. Knows none of the parts."""

import shlex
import sys
from importlib.util import find_spec


def install_command(extra: str) -> str:
    """For the Python that runs Breakeven: any other would look the package up on an index and install whatever has that
    name there."""
    return command_for(sys.executable, extra, has_pip=find_spec("pip") is not None)


def command_for(python: str, extra: str, *, has_pip: bool) -> str:
    """Uses the environment's own pip, or uv's: environments created by uv have no pip."""
    named = shlex.quote(python)
    installs = f"{named} -m pip install" if has_pip else f"uv pip install --python {named}"
    return f"{installs} 'breakeven[{extra}]'"


def missing_here(extra: str) -> str:
    """The same for readers who may be on another machine: local paths are shown only on this one."""
    return f"the extra {extra!r} is not installed where Breakeven runs, and `breakeven doctor` there says how to add it"
