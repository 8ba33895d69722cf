from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import gateway.economics.gpu_table
from gateway.economics.demand import Hours, count_hours
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_table import GpuTable, parse_gpu_table
from gateway.economics.traffic import HostedAlternative
from gateway.economics.what_if import Candidate, WhatIf, build_engine, rank, sequences_that_fit, what_if
from tests.unit.gateway.economics.builders import LARGE, MINI, USD, covering_period, make_days

TEXT = Path(gateway.economics.gpu_table.__file__).with_suffix(".yaml").read_text(encoding="utf-8")
TABLE = parse_gpu_table(TEXT)
DAY = date(2026, 11, 21)
EIGHT_B = Candidate("nvidia-h100-sxm-80gb", "llama-3.1-8b-instruct")


def ask(candidate: Candidate = EIGHT_B, table: GpuTable = TABLE) -> WhatIf:
    return what_if(hours_of(7, LARGE), candidate, table, day=DAY, generator=np.random.default_rng(1))


def hours_of(days: int, hosted: HostedAlternative) -> Hours:
    rows = make_days(days)
    return count_hours(rows, covering_period(rows), hosted)


def test_every_row_of_the_shipped_table_says_where_it_comes_from() -> None:
    for gpu in TABLE.gpus:
        assert gpu.typical_price(DAY).source
        assert gpu.specification
        for price in gpu.prices:
            assert price.basis == "published" or "assumed" in price.source
    assert all(curve.source for curve in TABLE.curves)


def test_prices_are_dated_and_a_newer_row_of_the_same_source_replaces_the_older() -> None:
    gpu = TABLE.gpu("nvidia-h100-sxm-80gb")
    assert [price.usd_per_hour for price in gpu.prices_on(date(2026, 10, 1))] == ["3.49", "4.29"]
    assert [price.usd_per_hour for price in gpu.prices_on(DAY)] == ["3.99", "4.29", "6.88"]
    assert gpu.typical_price(DAY).pico_usd_per_hour == 4_290_000_000_000
    with pytest.raises(EconomicsError, match="add a dated row"):
        gpu.typical_price(date(2020, 1, 1))


def test_renting_one_h100_for_the_mid_tier() -> None:
    answer = ask()
    assert answer.curve_basis == "assumed"
    assert answer.price.source.startswith("Lambda")
    assert answer.report.month.plan_saving_usd > 0
    assert any("assumed, not measured" in note for note in answer.report.caveats)
    assert not answer.report.owned.is_measured


def test_an_assumed_engine_is_slower_than_its_data_sheet() -> None:
    """16.06 GB of weights at 3,350 GB/s are 4.8 ms a step at the very best."""
    engine, _, _ = build_engine(EIGHT_B, TABLE, tokens_per_sequence=1600)
    assert engine.curve.step_seconds(1) > 16.06 / 3350
    assert engine.prefill_tokens_per_second < 989e12 / 16.06e9


def test_of_experts_all_take_memory_and_few_take_time() -> None:
    """30.5 billion weights (61 GB), 3.3 of them per token: one sequence reads 6.6 GB a step, a large batch all of
    them."""
    row = "{name: qwen3-30b-a3b, parameters_billion: 30.5, active_parameters_billion: 3.3, bytes_per_parameter: 2, "
    row += "layers: 48, kv_heads: 4, head_dimension: 128}"
    table = parse_gpu_table(TEXT.replace("models:\n", f"models:\n  - {row}\n"))
    model, dense = table.model("qwen3-30b-a3b"), table.model("llama-3.1-8b-instruct")
    assert model.weight_bytes == 61e9
    assert model.weight_bytes_read(1) == pytest.approx(6.6e9)
    assert model.weight_bytes_read(8) == pytest.approx(61e9 * (1 - (1 - 3.3 / 30.5) ** 8))
    assert model.weight_bytes_read(256) == pytest.approx(61e9)
    assert dense.weight_bytes_read(1) == dense.weight_bytes_read(99) == dense.weight_bytes
    engines = [
        build_engine(replace(EIGHT_B, model=name), table, tokens_per_sequence=1600)[0]
        for name in (model.name, dense.name)
    ]
    assert engines[0].prefill_tokens_per_second / engines[1].prefill_tokens_per_second == pytest.approx(8.03 / 3.3)


def test_more_active_parameters_than_there_are_is_an_error() -> None:
    with pytest.raises(EconomicsError, match="are some of parameters_billion"):
        parse_gpu_table(
            TEXT.replace("parameters_billion: 8.03,", "parameters_billion: 8.03, active_parameters_billion: 9,")
        )


def test_a_published_curve_is_used_before_an_assumption() -> None:
    candidate = Candidate("nvidia-h100-sxm-80gb", "llama-3.3-70b-instruct-fp8", gpus_per_replica=2)
    answer = ask(candidate)
    assert answer.curve_basis == "published"
    assert answer.concurrency == 50
    assert not any("assumed, not measured" in note for note in answer.report.caveats)
    assert answer.report.unit.replica_hour_usd == 2 * Decimal("4.29")
    assert ask(replace(candidate, gpus_per_replica=4)).curve_basis == "assumed"


def test_a_model_that_does_not_fit_is_refused_with_its_bytes() -> None:
    candidate = Candidate("nvidia-l4-24gb", "llama-3.3-70b-instruct-fp8")
    with pytest.raises(EconomicsError, match=r"70\.6 GB of weights.*offer 21\.6 GB"):
        ask(candidate)


def test_weights_that_just_fit_leave_no_room_for_a_sequence() -> None:
    gpu, model = TABLE.gpu("nvidia-a100-sxm-80gb"), TABLE.model("llama-3.3-70b-instruct-fp8")
    assert sequences_that_fit(gpu, model, TABLE, gpus=1, tokens_per_sequence=1000) == 4
    with pytest.raises(EconomicsError, match="use more GPUs per replica"):
        sequences_that_fit(gpu, model, TABLE, gpus=1, tokens_per_sequence=100_000)


def test_a_target_that_no_concurrency_meets() -> None:
    with pytest.raises(EconomicsError, match="even alone"):
        ask(replace(EIGHT_B, time_per_output_token_seconds=0.001))


def test_a_tighter_target_means_fewer_sequences() -> None:
    tight = ask(replace(EIGHT_B, time_per_output_token_seconds=0.012))
    assert tight.concurrency < ask().concurrency


def test_candidates_are_ranked_by_what_they_save() -> None:
    answers = [
        ask(replace(EIGHT_B, gpu=gpu, fixed_month_pico_usd=fixed * USD))
        for gpu, fixed in (("nvidia-l40s-48gb", 0), ("nvidia-h100-sxm-80gb", 0), ("nvidia-h200-sxm-141gb", 9000))
    ]
    savings = [answer.report.month.plan_saving_usd for answer in rank(answers)]
    assert savings == sorted(savings, reverse=True)


def test_names_that_are_not_in_the_table() -> None:
    with pytest.raises(EconomicsError, match="it has nvidia-l4"):
        ask(replace(EIGHT_B, gpu="h100"))
    with pytest.raises(EconomicsError, match="it has smollm2"):
        ask(replace(EIGHT_B, model="gpt"))


@pytest.mark.parametrize(
    "change",
    [
        ("version: 1", "version: 2"),
        ("memory_gb: 24", "memory_gb: -24"),
        ("memory_gb: 24", "memory: 24"),
        ("model: llama-3.3-70b-instruct-fp8", "model: unknown"),
        ("basis: published", "basis: rumour"),
        ("version: 1", "version: [1"),
    ],
)
def test_a_wrong_table_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(EconomicsError, match="cannot be used"):
        parse_gpu_table(TEXT.replace(*change, 1))


def test_quality_of_the_candidate_is_stated() -> None:
    candidate = replace(EIGHT_B, quality=0.66)
    answer = what_if(hours_of(2, MINI), candidate, TABLE, day=DAY, generator=np.random.default_rng(1))
    assert "0.660 owned against 0.710 hosted" in answer.report.verdict
