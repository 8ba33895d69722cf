"""Run in a separate process, since frozen objects stay frozen, and the tests' process has its own settings."""

import subprocess
import sys

MADE = """
import gc
from native import cycles

lasts = [[] for _ in range(50_000)]
cycles.search_seldom()
looked_through = len(gc.get_objects())
assert looked_through < 1_000, looked_through
assert gc.get_freeze_count() > 50_000
searches = []
gc.callbacks.append(lambda phase, info: searches.append(info["generation"]) if phase == "start" else None)
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", MADE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_there_before_is_not_looked_through_again() -> None:
    run("under_way = [[] for _ in range(5_000)]; assert searches == [], searches")


def test_cycles_that_came_later_are_found_all_the_same() -> None:
    run(
        """
import weakref

class Node:
    def __init__(self):
        self.itself = self

first = weakref.ref(Node())
assert first() is not None
made = 0
while first() is not None and made < 1_000_000:
    Node()
    made += 1
assert first() is None, made
assert searches.count(0) <= 100, len(searches)
"""
    )


def test_a_command_does_not_search_what_it_imports_and_does_what_it_makes() -> None:
    run(
        """
import sys
from gateway.cli import main

gc.unfreeze()
gc.set_threshold(700, 10, 10)
sys.argv = ["breakeven", "costs", "--help"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
assert len(searches) < 5, len(searches)  # about 250 by Python's own thresholds
assert gc.isenabled()
assert gc.get_threshold() == cycles.OBJECTS
"""
    )
