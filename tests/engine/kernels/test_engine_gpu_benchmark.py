"""The GPU benchmark on a machine without a GPU: its arithmetic, its report, and its message instead of running."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.engine_gpu.__main__ import begin, main, measure, parse, uninterpretable
from benchmarks.engine_gpu.ceilings import (
    DeviceRates,
    decode_tokens_per_second,
    expected_experts,
    head_weights,
    matrix_weights,
    prefill_tokens_per_second,
)
from benchmarks.engine_gpu.report import build_bars, build_report, render
from benchmarks.engine_gpu.run import AnotherDevice, Run, conclude, is_under_way, leave_out_of_time
from benchmarks.engine_gpu.shapes import LLAMA_8B, QWEN3_30B_A3B, QWEN3_600M, SHAPES, Sizes, in_order
from benchmarks.engine_gpu.supervision import (
    CANNOT,
    DONE,
    FAILED,
    LOST,
    MOST_PROCESSES,
    OUT_OF_TIME,
    run_process,
    supervise,
)
from local_engine.config import ExpertShape, ModelConfig
from local_engine.errors import DeviceLost
from local_engine.memory_plan import weight_bytes

ROOT = Path(__file__).parents[3]
BLOCK_SIZE = 16
RATES = DeviceRates(copy_bytes_per_second=4.3e12, bf16_flops_per_second=790e12)


def test_weights_add_up_to_the_models_names() -> None:
    assert matrix_weights(QWEN3_600M) + head_weights(QWEN3_600M) == pytest.approx(0.596e9, rel=0.001)
    assert matrix_weights(LLAMA_8B) + 2 * head_weights(LLAMA_8B) == LLAMA_8B.parameters
    assert LLAMA_8B.parameters == pytest.approx(8.03e9, rel=0.001)
    assert LLAMA_8B.kv_bytes_per_token(2) == 131_072


def test_what_has_a_bar_is_measured_first_of_all_models() -> None:
    order = in_order([LLAMA_8B, QWEN3_600M], Sizes())
    assert [(shape.name, list(sizes.batches), sizes.compares) for shape, sizes in order] == [
        ("llama-3.1-8b", ["bfloat16"], False),
        ("qwen3-0.6b", ["bfloat16"], False),
        ("llama-3.1-8b", ["bfloat16"], True),
        ("qwen3-0.6b", ["bfloat16"], True),
        ("llama-3.1-8b", ["bfloat16", "fp8", "int4"], True),
        ("qwen3-0.6b", ["bfloat16", "fp8", "int4"], True),
    ]
    assert {sizes.blocks(BLOCK_SIZE) for _, sizes in order} == {Sizes().blocks(BLOCK_SIZE)}


@pytest.mark.parametrize(
    ("batch", "weights", "tokens_per_second"),
    [(1, "bfloat16", 284), (64, "bfloat16", 11_700), (256, "bfloat16", 22_300), (1, "fp8", 563), (256, "fp8", 26_300)],
)
def test_decode_ceilings_at_a_thousand_tokens_of_context(batch: int, weights: str, tokens_per_second: float) -> None:
    """By hand for one sequence: 15.0e9 bytes of weights and 0.134e9 of cache at 4.3e12 bytes/s take 3.52 ms."""
    got = decode_tokens_per_second(LLAMA_8B, RATES, batch=batch, context=1024, weights=weights)
    assert got == pytest.approx(tokens_per_second, rel=0.01)


def test_a_large_enough_batch_is_bound_by_arithmetic() -> None:
    slow = DeviceRates(copy_bytes_per_second=4.3e12, bf16_flops_per_second=1e12)
    got = decode_tokens_per_second(LLAMA_8B, slow, batch=64, context=1, weights="bfloat16")
    assert got == pytest.approx(1e12 / (2 * 7.5e9), rel=0.01)


def test_prefill_ceilings() -> None:
    assert prefill_tokens_per_second(LLAMA_8B, RATES, prompt=1024) == pytest.approx(55_500, rel=0.01)
    assert prefill_tokens_per_second(QWEN3_600M, RATES, prompt=1024) == pytest.approx(791_000, rel=0.01)


def test_experts_that_a_batch_takes() -> None:
    """Compared with random draws: 8 of 128 for each of so many tokens."""
    draw = random.Random(5)
    for batch in (1, 4, 64):
        taken = [len({e for _ in range(batch) for e in draw.sample(range(128), 8)}) for _ in range(400)]
        assert expected_experts(QWEN3_30B_A3B, batch) == pytest.approx(sum(taken) / len(taken), rel=0.02)
    assert expected_experts(LLAMA_8B, 64) is None


def test_ceilings_with_experts_count_those_that_a_step_reads() -> None:
    """By hand: of 29.9e9 weights in the layers a token uses 2.73e9, plus the head's 0.31e9; 64 tokens use 126 of 128
    experts and so read nearly all, but multiply only with their own."""
    shape = QWEN3_30B_A3B
    assert matrix_weights(shape, 128) + 2 * head_weights(shape) == shape.parameters
    assert matrix_weights(shape) + 2 * head_weights(shape) == shape.active_parameters
    one = 2 * (2.730e9 + 0.311e9) + 1024 * shape.kv_bytes_per_token(2)
    got = decode_tokens_per_second(shape, RATES, batch=1, context=1024)
    assert got == pytest.approx(4.3e12 / one, rel=0.01)
    many = 2 * (29.9e9 * 0.985 + 0.311e9) + 64 * 1024 * shape.kv_bytes_per_token(2)
    got = decode_tokens_per_second(shape, RATES, batch=64, context=1024)
    assert got == pytest.approx(64 * 4.3e12 / many, rel=0.01)
    slow = DeviceRates(copy_bytes_per_second=4.3e12, bf16_flops_per_second=1e12)
    got = decode_tokens_per_second(shape, slow, batch=64, context=1)
    assert got == pytest.approx(1e12 / (2 * (2.730e9 + 0.311e9)), rel=0.01)
    assert prefill_tokens_per_second(shape, RATES, prompt=1024) == pytest.approx(
        7.9e14 / (2 * 2.730e9 + 4.03e8), rel=0.01
    )
    few = replace(shape, experts=ExpertShape(128, 8, 768, dense_layers=frozenset({0})))
    assert matrix_weights(few, 128) + 2 * head_weights(few) == few.parameters


def decode_figures(share: float, overhead: float = 0.05) -> dict[str, float]:
    return {"share": share, "served_tokens_per_second": 1000 * share, "overhead_share": overhead}


def test_bars_judge_what_was_measured_and_nothing_else() -> None:
    results: dict[str, Any] = {
        "copy_bytes_per_second": 4.3e12,
        "llama-3.1-8b": {
            "bfloat16": {"b1": decode_figures(0.71), "b256": decode_figures(0.4, overhead=0.2)},
            "against_transformers": {"ratio": 2.5},
        },
        "qwen3-0.6b": {"bfloat16": {"b1": decode_figures(0.95)}},
    }
    bars = {bar["what"]: bar for bar in build_bars(results, "some GPU")}
    assert [bar["holds"] for bar in bars.values()] == [True, False, True, False, False]
    assert bars["llama-3.1-8b b256: scheduling and sampling, share of a step"]["value"] == 0.2
    report = build_report({"gpu": "none"}, "unknown", results)
    assert set(report) == {"name", "machine", "commit", "results", "bars"}
    assert json.loads(json.dumps(report)) == report
    assert {bar["device"] for bar in report["bars"]} == {"none"}
    assert render(report).startswith("none, 4.3 TB/s copied\n")
    assert render(report).count("fails") == 3


def test_a_failing_or_late_part_is_named_and_costs_the_others_nothing(tmp_path: Path) -> None:
    def fail() -> float:
        raise RuntimeError("no such kernel")

    output = tmp_path / "deep" / "report.json"
    run = Run(output, deadline=1e12, machine={}, commit="unknown")
    assert run.attempt(("a", "works"), 1, lambda: 7) == 7
    assert run.attempt(("a", "breaks"), 1, fail) is None
    assert run.attempt(("a", "late"), 1e13, lambda: 8) is None
    assert run.obtain(("a", "model"), 1, lambda: "weights") == "weights"
    written = json.loads(output.read_text())["results"]
    assert written["a"] == {"works": 7}
    assert written["failed"] == {"a/breaks": "RuntimeError: no such kernel"}
    assert list(written["left_out"]) == ["a/late"]
    assert "under_way" not in written


def test_a_part_that_takes_the_device_with_it_ends_its_process_and_the_next_goes_on_after_it(tmp_path: Path) -> None:
    output, measured = tmp_path / "report.json", list[str]()

    def lost() -> None:
        if measured[-1] == "faults":
            raise DeviceLost("cuda computes nothing more")

    def measure(name: str) -> str:
        measured.append(name)
        if name == "faults":
            raise RuntimeError("an illegal memory access")
        if name == "killed":
            assert json.loads(output.read_text())["results"]["under_way"] == "a/killed"
            raise SystemExit(-signal.SIGSEGV)
        return name

    def process(further: Sequence[str], _limit_seconds: float) -> int:
        run = Run(output, deadline=1e12, machine={}, commit="unknown", check=lost)
        if "--resume" in further:
            run.resume()
        try:
            for name in ("first", "faults", "second", "killed", "third"):
                run.attempt(("a", name), 1, lambda name=name: measure(name))
        except DeviceLost:
            return LOST
        except SystemExit as death:
            # A killed process writes nothing more.
            output.write_text(json.dumps(run.report() | {"results": run.results | {"under_way": "a/killed"}}))
            assert is_under_way(output)
            return int(str(death.code))
        run.write()
        return FAILED

    assert supervise(process, 1e9) == FAILED
    assert measured == ["first", "faults", "second", "killed", "third"], "nothing is measured twice"
    results = json.loads(output.read_text())["results"]
    assert results["a"] == {"first": "first", "second": "second", "third": "third"}
    assert results["failed"] == {
        "a/faults": "RuntimeError: an illegal memory access",
        "a/killed": "the measuring process ended in it",
    }


def test_a_part_that_succeeds_and_leaves_the_device_unfit_keeps_its_figures(tmp_path: Path) -> None:
    output, is_fit = tmp_path / "report.json", [True]

    def check() -> None:
        if not is_fit[0]:
            raise DeviceLost("transformers still generates")

    def measure() -> int:
        is_fit[0] = False
        return 7

    run = Run(output, deadline=1e12, machine={}, commit="unknown", check=check)
    with pytest.raises(DeviceLost):
        run.attempt(("a", "leaves"), 1, measure)
    assert json.loads(output.read_text())["results"] == {"a": {"leaves": 7}}


def test_what_breaks_between_two_parts_is_gone_on_from_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run used to end with a failure's status, and nothing after it was measured."""

    def break_off(*_: object) -> None:
        raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    monkeypatch.setattr("benchmarks.engine_gpu.__main__.measure_everything", break_off)
    run = Run(tmp_path / "report.json", deadline=1e12, machine={}, commit="unknown")
    assert measure(run, parse([])) == LOST
    assert "captures_underway" in capsys.readouterr().err


def test_what_a_killed_process_left_is_concluded(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    assert conclude(output) is None
    assert not is_under_way(output)
    run = Run(output, deadline=1e12, machine={"gpu": "some"}, commit="abc")
    run.attempt(("a", "first"), 1, lambda: 7)
    run.results["under_way"] = "a/hangs"
    run.write()
    report = conclude(output)
    assert report is not None
    assert report["results"] == {"a": {"first": 7}, "failed": {"a/hangs": "the measuring process ended in it"}}
    assert (report["machine"], report["commit"]) == ({"gpu": "some"}, "abc")
    assert json.loads(output.read_text()) == report
    assert list(tmp_path.iterdir()) == [output]


def test_a_part_that_the_budgets_end_cuts_off_is_measured_by_resume(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    leave_out_of_time(output)
    cut_off = Run(output, deadline=1e12, machine={"gpu": "some"}, commit="abc")
    cut_off.attempt(("a", "first"), 1, lambda: 7)
    cut_off.results["under_way"] = "a/second"
    cut_off.write()
    leave_out_of_time(output)
    report = conclude(output)
    assert report is not None
    assert report["results"] == {
        "a": {"first": 7},
        "left_out": {"a/second": "the time was up while it was measured"},
    }
    resumed = Run(output, deadline=1e12, machine={"gpu": "some"}, commit="abc")
    resumed.resume()
    assert resumed.attempt(("a", "second"), 1, lambda: 8) == 8
    assert resumed.results == {"a": {"first": 7, "second": 8}}


def test_a_process_counts_its_time_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch and transformers take up to a minute to import: when that did not count, the last part was cut off."""

    def machine(*, is_smoke: bool) -> dict[str, str]:
        assert not is_smoke
        return {"gpu": "some"}

    monkeypatch.setattr("benchmarks.engine_gpu.__main__.machine", machine)
    options = parse(["--budget-seconds", "100", "--output", "unused.json"])
    assert begin(options, 5000.0).deadline == 5100.0


def test_figures_of_another_device_are_not_gone_on_with(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    Run(output, deadline=1e12, machine={"gpu": "H100"}, commit="abc").attempt(("a", "first"), 1, lambda: 7)
    before = output.read_text()
    with pytest.raises(AnotherDevice, match="figures of H100, and this is H200"):
        Run(output, deadline=1e12, machine={"gpu": "H200"}, commit="abc").resume()
    assert output.read_text() == before
    same = Run(output, deadline=1e12, machine={"gpu": "H100"}, commit="def")
    same.resume()
    assert same.results == {"a": {"first": 7}}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_everything_fits_an_h100(shape: ModelConfig) -> None:
    """transformers' weights, ours, the caches, and a tenth of the memory for products, graphs and libraries."""
    sizes = Sizes()
    caches = sizes.blocks(BLOCK_SIZE) * BLOCK_SIZE * shape.kv_bytes_per_token(2)
    assert 2 * weight_bytes(shape, "bfloat16") + caches < 0.9 * 78 * 2**30


def test_a_part_that_hangs_ends_its_process_and_says_where() -> None:
    code = """
import time
from benchmarks.engine_gpu.supervision import ended_after

with ended_after(600):
    pass
with ended_after(0.1):
    time.sleep(600)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == FAILED
    assert "line 8" in ended.stderr


def test_a_process_that_outlasts_its_time_is_ended() -> None:
    assert run_process([sys.executable, "-c", "import time; time.sleep(600)"], 0.1) == OUT_OF_TIME
    assert run_process([sys.executable, "-c", "raise SystemExit(2)"], 600) == CANNOT


def test_a_part_is_limited_to_several_times_what_it_may_need(tmp_path: Path) -> None:
    limits: list[float] = []

    def limited(seconds: float) -> AbstractContextManager[None]:
        limits.append(seconds)
        return nullcontext()

    run = Run(tmp_path / "report.json", deadline=1e12, machine={}, commit="unknown", limited=limited)
    run.attempt(("short",), 5, lambda: 1)
    run.obtain(("long",), 40, lambda: 1)
    assert limits == [90, 200]


@pytest.mark.parametrize(("statuses", "ends"), [([DONE], DONE), ([LOST, -11, DONE], DONE), ([CANNOT], CANNOT)])
def test_processes_follow_one_another_until_one_comes_to_its_end(statuses: list[int], ends: int) -> None:
    left, told = list(statuses), list[list[str]]()

    def process(further: Sequence[str], limit_seconds: float) -> int:
        assert limit_seconds > 500
        told.append([part for part in further if part == "--resume"])
        return left.pop(0)

    assert supervise(process, 540) == ends
    assert told == [[], *[["--resume"]] * (len(statuses) - 1)]


@pytest.mark.parametrize(("budget_seconds", "processes"), [(540, MOST_PROCESSES), (1, 1)])
def test_a_machine_on_which_every_process_dies_is_given_up(budget_seconds: float, processes: int) -> None:
    """And none is started when the time is up."""
    limits: list[float] = []

    def process(_further: Sequence[str], limit_seconds: float) -> int:
        limits.append(limit_seconds)
        return LOST

    assert supervise(process, budget_seconds, resumes=True) == LOST
    assert len(limits) == processes


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: the benchmark would run")
def test_without_a_gpu_it_says_so_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 2
    assert capsys.readouterr().err == "engine_gpu needs an NVIDIA GPU that torch can use, and this machine has none.\n"


@pytest.mark.parametrize(
    ("triton", "numpy", "is_told"),
    [("3.6.0", "2.5.2", True), ("3.6.0", "2.4.0", True), ("3.6.0", "2.3.5", False), ("3.7.1", "2.5.2", False)],
)
def test_a_numpy_that_the_interpreter_fails_with_is_told(triton: str, numpy: str, *, is_told: bool) -> None:
    """Every part used to fail with a traceback from inside the interpreter."""
    assert ("numpy below 2.4" in (uninterpretable(triton, numpy) or "")) is is_told
