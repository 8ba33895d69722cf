"""How a part that was not installed is added: one command, the same wherever it is told. Knows no part."""

import shlex
import sys


def install_command(extra: str) -> str:
    """With this Python's own pip, which has Breakeven already: any other would look for it at an index, and bring
    whatever has that name there."""
    return f"{shlex.quote(sys.executable)} -m pip install 'breakeven[{extra}]'"


def missing_here(extra: str) -> str:
    """The same for whoever may ask from another machine: its own paths are told there alone."""
    return f"the extra {extra!r} is not installed where Breakeven runs, and `breakeven doctor` there says how to add it"
