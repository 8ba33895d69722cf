"""The ways in which tests compile the native decoder."""

import platform
from typing import Final

import pytest

from local_engine.native.build import InstructionSet

# What ARM computes with, but for NEON itself, on any machine. Not optimised: it takes a second, not half a minute.
PLAIN_VECTORS: Final = InstructionSet("plain vectors", platform.machine(), frozenset(), ("-O0",))


def compiled_as(*sets: InstructionSet) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("library", sets, ids=lambda instructions: instructions.name, indirect=True)
