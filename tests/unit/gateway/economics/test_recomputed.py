"""A what-if, an overflow value and a throughput fit computed a second time, by hand, without the product's code."""

import math
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gateway.economics.gpu_table
from gateway.economics.demand import count_hours
from gateway.economics.gpu_table import parse_gpu_table
from gateway.economics.throughput_curve import SweepPoint, fit_throughput_curve
from gateway.economics.traffic import HostedAlternative, HourlyTraffic, Period
from gateway.economics.what_if import Candidate, sequences_that_fit, what_if
from gateway.instants import HOUR_US
from tests.unit.gateway.economics.builders import MARCH_2026_US

TEXT = Path(gateway.economics.gpu_table.__file__).with_suffix(".yaml").read_text(encoding="utf-8")
SHEET = yaml.safe_load(TEXT)
DAY = date(2026, 11, 21)
HOSTED = HostedAlternative("mid", 250_000, 25_000, 2_000_000)
HOURS = 72
TARGET_SECONDS = 0.06


def traffic() -> list[HourlyTraffic]:
    """Three days: busy at noon, idle at night, with some aborted requests and varying lengths."""
    rows: list[HourlyTraffic] = []
    for hour in range(HOURS):
        requests = round(60_000 * max(0.0, math.sin(math.pi * (hour % 24) / 24)) ** 2)
        if requests < 50:
            continue
        tokens = 700 + 40 * (hour % 7)
        rows.append(
            HourlyTraffic(
                hour_start_us=MARCH_2026_US + hour * HOUR_US,
                model="any",
                requests=requests,
                input_tokens=tokens * requests,
                cached_input_tokens=tokens * requests // 3,
                output_tokens=220 * requests + hour,
                gpu_seconds=0.0,
                cost_pico_usd=0,
                list_cost_pico_usd=0,
                aborted_requests=requests // 50,
            )
        )
    return rows


def lost_share(slots: int, erlangs: float) -> float:
    """Erlang B from its definition, in logarithms; the product uses a recursion."""
    terms = [count * math.log(erlangs) - math.lgamma(count + 1) for count in range(slots + 1)]
    top = max(terms)
    return math.exp(terms[-1] - top) / math.fsum(math.exp(term - top) for term in terms)


def named(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    [row] = [row for row in rows if row["name"] == name]
    return row


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        ("nvidia-h100-sxm-80gb", "llama-3.1-8b-instruct"),
        ("nvidia-a100-sxm-80gb", "qwen2.5-14b-instruct"),
        ("nvidia-l40s-48gb", "qwen2.5-7b-instruct"),
    ],
)
def test_a_what_if_is_what_its_sheet_and_the_rows_say(gpu: str, model: str) -> None:
    rows = traffic()
    table = parse_gpu_table(TEXT)
    hours = count_hours(rows, Period(MARCH_2026_US, MARCH_2026_US + HOURS * HOUR_US), HOSTED)
    answer = what_if(hours, Candidate(gpu, model), table, day=DAY, generator=np.random.default_rng(1))
    card, net, shares = named(SHEET["gpus"], gpu), named(SHEET["models"], model), SHEET["assumptions"]
    weights = net["parameters_billion"] * 1e9 * net["bytes_per_parameter"]
    per_token = 2 * net["layers"] * net["kv_heads"] * net["head_dimension"] * 2
    mean = sum(row.input_tokens + row.output_tokens for row in rows) / sum(row.requests for row in rows)
    fitting = int((card["memory_gb"] * 1e9 * shares["memory"] - weights) / (per_token * 2 * mean))
    bandwidth = card["memory_gb_per_second"] * 1e9 * shares["memory_bandwidth"]
    operations = card["dense_bf16_tflops"] * 1e12 * shares["compute"]
    base = weights / bandwidth
    each = per_token * mean / bandwidth + 2 * net["parameters_billion"] * 1e9 / operations
    slots = max(count for count in range(1, min(fitting, 256) + 1) if base + each * count <= TARGET_SECONDS)
    its = table.gpu(gpu), table.model(model), table
    assert sequences_that_fit(*its, gpus=1, tokens_per_sequence=2 * mean) == fitting
    assert answer.concurrency == slots

    prefill = operations / (2 * net["parameters_billion"] * 1e9)
    bill = saved = seconds = credit = 0.0
    for row in rows:
        fresh = row.input_tokens - row.cached_input_tokens
        dollars = (fresh * 0.25 + row.cached_input_tokens * 0.025 + row.output_tokens * 2.0) / 1e6
        worth = dollars * (row.requests - row.aborted_requests) / row.requests
        busy = fresh / prefill + row.output_tokens * (base + each * slots) / slots
        bill, credit, seconds = bill + dollars, credit + worth, seconds + busy
        saved += worth * (1 - lost_share(slots, busy / 3600 * slots))
    price = answer.price.pico_usd_per_hour / 1e12
    report, month = answer.report, 720 / HOURS
    assert float(report.month.all_hosted_usd) == pytest.approx(bill * month)
    assert float(report.month.plan_usd) == pytest.approx((bill - saved) * month + price * 720)
    assert report.unit.break_even_utilisation == pytest.approx(price / (credit / (seconds / 3600)))
    assert saved < 0.999 * credit, "a busy hour loses some requests: else nothing of Erlang is in this"


@pytest.mark.parametrize("sweep", SHEET["curves"], ids=lambda sweep: sweep["model"])
def test_a_fit_is_the_exact_least_squares_line(sweep: dict[str, Any]) -> None:
    """The sweeps of the shipped table, in fractions; the product uses numpy's decomposition."""
    points = [(point["concurrency"], point["decode_tokens_per_second"]) for point in sweep["points"]]
    xs = [Fraction(count) for count, _ in points]
    ys = [Fraction(count) / Fraction(str(speed)) for count, speed in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    base = mean_y - slope * mean_x
    curve = fit_throughput_curve([SweepPoint(count, speed) for count, speed in points])
    assert curve.step_seconds_per_sequence == pytest.approx(float(slope), rel=1e-9)
    assert curve.step_base_seconds == pytest.approx(float(base), rel=1e-9)
    worst = max(abs(base + slope * x - y) / y for x, y in zip(xs, ys, strict=True))
    assert curve.largest_relative_residual == pytest.approx(float(worst), rel=1e-6)
    assert curve.is_interpolated == (worst > Fraction(1, 10) or slope <= 0)
