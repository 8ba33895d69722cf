"""The benchmark's engine, tiny and interpreted, against transformers with the same weights: what it times is
correct."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch

from benchmarks.engine_gpu import checks, engine, parts, rivals
from benchmarks.engine_gpu.captured import error_of_step
from benchmarks.engine_gpu.ceilings import DeviceRates
from benchmarks.engine_gpu.run import Run
from benchmarks.engine_gpu.shapes import LLAMA_8B, QWEN3_600M, SMOKE
from local_engine.config import ModelConfig
from local_engine.cuda_graph import uncollected
from local_engine.errors import DeviceLost
from local_engine.kernels.gpu_runner import FUSED, OVERLAPPING, SEPARATE, WAYS, OneRow
from tests.engine.kernels.builders import relative_error

CPU = torch.device("cpu")
TINY = {
    "layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "heads": 4,
    "kv_heads": 2,
    "head_size": 16,
    "vocabulary_size": 300,
    "context_window": 128,
}


@pytest.mark.parametrize("full", [QWEN3_600M, LLAMA_8B], ids=lambda shape: shape.name)
def test_logits_and_served_answers_are_transformers_own(full: ModelConfig) -> None:
    shape = replace(full, **TINY)
    rival = rivals.build(shape, CPU, torch.float32)
    weights = engine.StateDictWeights(rival.state_dict())
    built = engine.build(shape, weights, kind="float32", blocks=16, max_rows=8, device=CPU)
    prompts = parts.prompts(shape, 2, 10)
    wanted = rivals.last_logits(rival, prompts[0], CPU)
    assert relative_error(engine.prompt_logits(built, prompts[0]), wanted) < 1e-5
    assert relative_error(engine.decode_logits(built, prompts[0]), wanted) < 1e-5
    served = engine.serve(built, prompts, output_tokens=3, max_tokens_per_step=16)
    assert served.output_tokens == 6
    assert served.decode_step_seconds(2) > 0
    for prompt, answer in zip(prompts, served.answers.values(), strict=True):
        wanted = rival.generate(torch.tensor([prompt]), max_new_tokens=3, do_sample=False)
        assert answer == wanted[0, 10:].tolist()


def test_transformers_turns_by_frequencies_that_are_not_rounded_with_its_weights() -> None:
    rival = rivals.build(replace(LLAMA_8B, **TINY), CPU)
    assert {weight.dtype for weight in rival.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in rival.buffers()} == {torch.float32}
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("draws", [True, False])
def test_the_device_loop_moves_on_without_its_host(*, draws: bool) -> None:
    shape = replace(QWEN3_600M, **TINY)
    rival = rivals.build(shape, CPU, torch.float32)
    built = engine.build(
        shape, engine.StateDictWeights(rival.state_dict()), kind="float32", blocks=16, max_rows=8, device=CPU
    )
    loop = engine.DeviceLoop(built, rows=2, context=15, draws=draws)
    loop.start(steps=4)
    inputs = loop.buffers.view(2)
    before = inputs.slots.clone()
    chosen = loop.step(inputs).clone()
    loop.step(inputs)
    assert inputs.seq_lens.tolist() == [17, 17]
    assert inputs.positions.tolist() == [16, 16]
    assert inputs.slots.tolist() == [int(block) * 16 for block in inputs.block_table[:, 1]]
    assert before.tolist() == [int(block) * 16 + 14 for block in inputs.block_table[:, 0]]
    assert draws or chosen.tolist() == [0, 1], "without a draw the first tokens stay"


class Refusing:
    """A model whose continuous batching fails at its start, after changing the model's attention."""

    def __init__(self, error: Exception | None = None) -> None:
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.error = error or ValueError("no room")

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name

    def continuous_batching_context_manager(self, **_: object) -> None:
        self.set_attn_implementation("paged|sdpa")
        raise self.error


def test_a_rival_that_refuses_is_left_as_it_was() -> None:
    model = Refusing()
    with pytest.raises(RuntimeError, match=r"did not run: .*'defaults': 'ValueError: no room'"):
        rivals.best_effort(model, [[1, 2]], 2, lambda: 60.0, {})
    assert model.config._attn_implementation == "sdpa"


class Session:
    """It refers to itself, as transformers' sessions do."""

    def __init__(self) -> None:
        self.itself = self


class Hoarding(Refusing):
    """A model that fails after its session has allocated memory, but before there is a session to end."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[ReferenceType[Session]] = []

    def continuous_batching_context_manager(self, **_: object) -> None:
        assert not any(session() for session in self.sessions), "the one before holds its cache"
        session = Session()
        self.sessions.append(ref(session))
        raise RuntimeError("no room")


def test_a_rivals_second_configuration_finds_the_firsts_memory_free() -> None:
    """It used to fail for lack of memory if the first one had failed at its start and kept its caches."""
    model = Hoarding()
    with uncollected(), pytest.raises(RuntimeError, match=r"did not run: .*'defaults': 'RuntimeError: no room'"):
        rivals.best_effort(model, [[1, 2]], 2, lambda: 60.0, {})
    assert len(model.sessions) == 2


def test_what_comes_after_a_rival_that_broke_off_is_measured_by_another_process() -> None:
    """Its generation thread leaves torch in a capture; the next part used to run out of memory and end the run."""
    shape = replace(LLAMA_8B, **TINY)
    run = Run(None, deadline=float("inf"), machine={}, commit="unknown")
    broken = Refusing(RuntimeError("transformers' generation thread stopped"))
    for device, is_lost in (("cpu", False), ("cuda", True)):
        run.results.clear()
        ground = parts.Ground(shape, DeviceRates(1.0, 1.0), torch.device(device))
        with pytest.raises(DeviceLost, match="broke off") if is_lost else nullcontext():
            parts.compare_once(run, 7.0, broken, ground, SMOKE)
    parts.compare_once(run, 7.0, broken, ground, SMOKE)
    assert list(run.results["failed"]) == [f"{shape.name}/against_transformers"]


@pytest.mark.parametrize(
    ("reason", "broke_off"), [("ValueError: no such field", False), ("OutOfMemoryError: 2 GiB", True)]
)
def test_a_configuration_that_is_refused_leaves_nothing_behind(reason: str, *, broke_off: bool) -> None:
    assert rivals.has_broken_off({"cuda graphs": reason}) == broke_off
    assert not rivals.has_broken_off({})


def test_models_are_measured_without_what_failed_on_the_device() -> None:
    """A process that hung in overlapping kernels is killed, and so would be every other that uses them."""
    measured: dict[str, Any] = {checks.PART: dict.fromkeys(checks.CHECKS, 0.0)}
    cases: list[tuple[dict[str, Any], tuple[OneRow, ...]]] = [({}, WAYS), (measured, WAYS)]
    cases += [(hung(name), (SEPARATE, FUSED)) for name in checks.NEEDED[OVERLAPPING]]
    cases += [(hung(name), (SEPARATE,)) for name in checks.NEEDED[FUSED]]
    for results, ways in cases:
        run = Run(None, deadline=0.0, machine={}, commit="unknown", results=results)
        assert parts.ways_that_run(run) == ways
    assert checks.CHECKS.keys() >= {name for names in checks.NEEDED.values() for name in names}


def hung(check: str) -> dict[str, Any]:
    """The state of a run whose process was killed during a check."""
    return {"failed": {f"{checks.PART}/{check}": "the measuring process ended in it"}}


@pytest.mark.parametrize("way", [SEPARATE, OVERLAPPING], ids=["separate", "overlapping"])
def test_a_captured_step_is_compared_with_its_prompt(way: OneRow) -> None:
    shape = replace(LLAMA_8B, **TINY | {"layers": 1, "vocabulary_size": 64})
    assert error_of_step(CPU, way, shape, tokens=18) < checks.BOUND


def test_no_model_is_built_again_for_what_is_measured() -> None:
    """A continued run used to build every model and format again for nothing."""
    shape = replace(LLAMA_8B, **TINY)
    formats: dict[str, dict[str, int]] = {
        kind: dict.fromkeys(["error_against_transformers", *(f"b{count}" for count in rows), "prefill"], 1)
        for kind, rows in SMOKE.batches.items()
    }
    formats["bfloat16"]["many_answers"] = 7
    model: dict[str, Any] = {"sampling_seconds": 1, "against_transformers": 1} | formats
    # Its time is up, so anything that it tries to build is reported as left out.
    run = Run(None, deadline=0.0, machine={}, commit="unknown", results={shape.name: model})
    rates = DeviceRates(1.0, 1.0)
    parts.measure_model(run, shape, rates, CPU, SMOKE)
    assert "left_out" not in run.results
    ground = parts.Ground(shape, rates, CPU)
    assert parts.measure_format(run, None, "bfloat16", ground, SMOKE) == 7
    del formats["int4"]["prefill"]
    parts.measure_model(run, shape, rates, CPU, SMOKE)
    assert list(run.results["left_out"]) == [f"{shape.name}/transformers"]
    run.results["failed"] = {f"{shape.name}/int4/load": "OutOfMemoryError"}
    del run.results["left_out"]
    parts.measure_model(run, shape, rates, CPU, SMOKE)
    assert "left_out" not in run.results
