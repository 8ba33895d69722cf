"""The host's cost of a step, in Python calls, which do not depend on the machine's load."""

import sys
from types import FrameType

from local_engine.engine_core import EngineCore
from local_engine.request import Request
from local_engine.sampling.sampler import Drawn
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch
from local_engine.steps import DoneStep, drawing_requests, one_per_row
from tests.unit.local_engine.scripted import make_core


class Drawing:
    """A device that draws the same token for every request, at negligible cost."""

    runs_ahead = False

    def begin(self, batch: Batch) -> DoneStep:
        return DoneStep(one_per_row(batch.rows, [Drawn([7], []) for _ in drawing_requests(batch.rows)]))

    def check(self) -> None: ...

    def forget(self, request_id: str) -> None: ...


def calls_of_a_step(rows: int) -> int:
    """The Python calls, including generator resumptions, of a step that gives each of so many answers a token."""
    core, _ = make_core(blocks=4 * rows, running=rows, budget=4 * rows, steps=Drawing())
    for name in range(rows):
        core.add(Request(str(name), [name, 1], SamplingParams(max_tokens=9)))
    core.step()
    return count_calls(core)


def count_calls(core: EngineCore) -> int:
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        core.step()
    finally:
        sys.setprofile(before)
    return calls


def test_a_step_costs_its_host_by_its_rows_and_not_by_their_square() -> None:
    few, many = calls_of_a_step(32), calls_of_a_step(256)
    assert many < 9 * few
