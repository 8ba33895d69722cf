"""The ways in which tests compile the native decoder."""

import platform
from typing import Final

import pytest

from local_engine.native.build import InstructionSet

# ARM's code without NEON instructions, on any machine. Not optimised, which takes a second instead of half a minute.
PLAIN_VECTORS: Final = InstructionSet("plain vectors", platform.machine(), frozenset(), ("-O0",))


def compiled_as(*sets: InstructionSet) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("library", sets, ids=lambda instructions: instructions.name, indirect=True)
