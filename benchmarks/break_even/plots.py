"""The report's pictures. matplotlib draws to files only; nothing is shown on a screen."""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.break_even.month import START
from benchmarks.break_even.study import PRICE_DECLINES, Study
from gateway.economics.overflow import served_value_usd_by_bin
from gateway.economics.staircase import replicas_for_peak

OWNED, HOSTED, WARN = "#1b7f5c", "#3b5bdb", "#c2410c"


def write_plots(study: Study, directory: Path) -> None:
    """One small PNG each."""
    directory.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    plots: dict[str, Callable[[Axes, Study], None]] = {
        "load": _load,
        "staircase": _staircase,
        "disciplines": _disciplines,
        "volume": _volume,
        "tornado": _tornado,
        "payback": _payback,
    }
    for name, draw in plots.items():
        figure = Figure(figsize=(7.2, 3.2), dpi=100, layout="constrained")
        draw(figure.subplots(), study)
        figure.savefig(directory / f"break-even-{name}.png", metadata={"Software": None})


def _load(axes: Axes, study: Study) -> None:
    load = study.demand.load
    hours = np.arange(len(load.hours)) / 24 + START.day
    axes.fill_between(hours, load.requests_per_second, color=HOSTED, alpha=0.35, linewidth=0)
    for count in (1, 2, 3):
        axes.axhline(count * study.report.unit.requests_per_second_per_replica, color=OWNED, linewidth=0.8)
        axes.annotate(
            f"{count} replica{'s' if count > 1 else ''}",
            (hours[-1], count * study.report.unit.requests_per_second_per_replica),
            ha="right",
            va="bottom",
            color=OWNED,
        )
    axes.set_ylabel("requests per second")
    axes.set_title("The month, hour by hour, and what replicas can carry")
    axes.set_xlabel("day of the month")


def _staircase(axes: Axes, study: Study) -> None:
    rows = study.report.staircase
    colours = [OWNED if row.pays else WARN for row in rows]
    axes.bar([str(row.replicas) for row in rows], [float(row.value_usd) for row in rows], color=colours, width=0.5)
    rent = float(rows[0].rent_usd)
    axes.axhline(rent, color="black", linewidth=1)
    axes.annotate("rent of one replica", (len(rows) - 0.8, rent), ha="right", va="bottom")
    axes.set_xlabel("replica number")
    axes.set_ylabel("dollars a month")
    axes.set_title("What each further replica takes off the hosted bill")


def _disciplines(axes: Axes, study: Study) -> None:
    names = ["upper bound: no randomness", "instant overflow", "a queue, first token within 1 s"]
    values = [study.fluid_saving_usd, study.overflow_saving_usd, study.queue_saving_usd]
    axes.barh(names, values, color=["#bbbbbb", OWNED, WARN], height=0.5)
    axes.plot([study.simulated_saving_usd], ["instant overflow"], "ko", markersize=4, label="simulated, every arrival")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *values), max(values) * 1.45)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("One replica, three ways of meeting a full GPU")
    axes.set_xlabel("dollars saved a month, before fixed costs")


def _volume(axes: Axes, study: Study) -> None:
    report, load = study.report, study.demand.load
    scales = np.linspace(0.02, 2.5, 500)
    per_day = scales * report.observed.requests_per_day
    hosted = scales * float(report.month.all_hosted_usd)
    rent, fixed = float(report.staircase[0].rent_usd), 600.0
    hybrid: list[float] = []
    alone: list[float] = []
    for scale, bill in zip(scales.tolist(), hosted.tolist(), strict=True):
        scaled = load.scaled(scale)
        hybrid.append(bill - float(served_value_usd_by_bin(scaled, 1, study.engine.concurrency).sum()) + rent + fixed)
        alone.append(replicas_for_peak(scaled) * rent + fixed)
    axes.plot(per_day, hosted, color=HOSTED, label="everything hosted")
    axes.plot(per_day, hybrid, color=OWNED, label="one replica, rest hosted")
    axes.plot(per_day, alone, color=WARN, linewidth=0.9, label="nothing hosted: sized for the peak")
    if report.volume.hybrid is not None:
        axes.axvline(report.volume.hybrid.requests_per_day, color="black", linestyle=":", linewidth=1)
        axes.annotate("break-even", (report.volume.hybrid.requests_per_day, 200), rotation=90, ha="right")
    axes.set_ylim(0, float(report.month.all_hosted_usd) * 2.6)
    axes.set_xlabel("requests a day, at this month's mix")
    axes.set_ylabel("dollars a month")
    axes.set_title("The month's bill at other volumes")
    axes.legend(frameon=False)


def _tornado(axes: Axes, study: Study) -> None:
    base = float(study.report.month.plan_saving_usd)
    for index, swing in enumerate(reversed(study.report.tornado)):
        low, high = float(swing.saving_at_minus_25_percent_usd), float(swing.saving_at_plus_25_percent_usd)
        axes.barh(index, low - base, left=base, color="#9aa5b1", height=0.6, label="25 % lower" if index == 0 else None)
        axes.barh(index, high - base, left=base, color=HOSTED, height=0.6, label="25 % higher" if index == 0 else None)
    axes.set_yticks(range(len(study.report.tornado)), [swing.input for swing in reversed(study.report.tornado)])
    axes.axvline(0, color=WARN, linewidth=1)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("The saving, with one input at a time a quarter off")
    axes.set_xlabel("dollars saved a month")


def _payback(axes: Axes, study: Study) -> None:
    months = np.arange(1, 61)
    cost = study.purchase.running_usd_per_month + study.purchase.fixed_usd_per_month
    for (name, factor), colour in zip(PRICE_DECLINES.items(), (OWNED, HOSTED, WARN), strict=True):
        recovered = np.cumsum(study.replaced_usd_per_month * factor ** ((months - 1) / 12) - cost)
        axes.plot(months, recovered, color=colour, label=f"hosted prices {name}")
    axes.axhline(study.purchase.purchase_usd, color="black", linewidth=1)
    axes.annotate("price of the machine", (1, study.purchase.purchase_usd), ha="left", va="bottom")
    axes.set_ylim(-10_000, study.purchase.purchase_usd * 1.6)
    axes.set_xlabel("months after buying")
    axes.set_ylabel("dollars recovered")
    axes.set_title("Buying the machine, for three futures of hosted prices")
    axes.legend(frameon=False, loc="upper right")
