"""The targets of `make fuzz` with bytes changed here and there in real captures; a few hundred inputs each.

`BREAKEVEN_FUZZ=50000` tries that many.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing.targets import TARGETS

pytestmark = pytest.mark.faults
TRIES = settings(
    max_examples=int(os.environ.get("BREAKEVEN_FUZZ", "70")),
    derandomize="BREAKEVEN_FUZZ" not in os.environ,
)
PIECES = st.binary(max_size=3) | st.sampled_from(
    [
        b"null",
        b"-1",
        b"1e999",
        b'"x"',
        b"{}",
        b"[]",
        b"\n\n",
        b"\r\n",
        b"data: ",
        b"\\ud800",
        b"0\r\n\r\n",
        b"\xef\xbb\xbf",
    ]
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_is_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", TARGETS)
@TRIES
@given(st.data())
def test_changed_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    found = data.draw(st.sampled_from(target.seeds))
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(found)))
        end = data.draw(st.integers(start, min(len(found), start + 24)))
        found = found[:start] + data.draw(PIECES) + found[end:]
    target.run(found)
