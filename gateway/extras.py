"""How a part that was not installed is added: one command, the same wherever it is told. Knows no part."""

import shlex
import sys
from importlib.util import find_spec


def install_command(extra: str) -> str:
    """For this Python, which has Breakeven already: any other would look for it at an index, and bring whatever has
    that name there."""
    return command_for(sys.executable, extra, has_pip=find_spec("pip") is not None)


def command_for(python: str, extra: str, *, has_pip: bool) -> str:
    """With its own pip, or with uv's: environments that uv makes have none."""
    named = shlex.quote(python)
    installs = f"{named} -m pip install" if has_pip else f"uv pip install --python {named}"
    return f"{installs} 'breakeven[{extra}]'"


def missing_here(extra: str) -> str:
    """The same for whoever may ask from another machine: its own paths are told there alone."""
    return f"the extra {extra!r} is not installed where Breakeven runs, and `breakeven doctor` there says how to add it"
