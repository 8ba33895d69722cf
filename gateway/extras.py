"""How a part that was not installed is added: one command, the same wherever it is told. Knows no part."""

import sys


def install_command(extra: str) -> str:
    """With this Python's own pip, which has Breakeven already: any other would look for it at an index, and bring
    whatever has that name there."""
    return f"{sys.executable} -m pip install 'breakeven[{extra}]'"
