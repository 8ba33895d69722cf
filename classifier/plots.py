"""Pictures of a calibration, for people: cost against quality, and predicted against observed. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from classifier.metrics import Array


def draw_cost_quality(curve: Sequence[tuple[float, float]], out: Path) -> None:
    """Mean quality against the share of strong calls, beside the straight line of random routing."""
    shares, quality = zip(*curve, strict=True)
    figure, axes = plt.subplots(figsize=(5, 4))
    axes.plot(shares, quality, label="classifier")
    axes.plot([0, 1], [quality[0], quality[-1]], linestyle="--", label="random")
    axes.set(xlabel="share of calls to the strong model", ylabel="mean quality")
    axes.legend()
    _save(figure, out)


def draw_reliability(predicted: Array, outcome: Array, out: Path) -> None:
    """Observed share of good answers against the predicted one, over ten equally filled bins."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), 10)
    figure, axes = plt.subplots(figsize=(5, 4))
    axes.plot([0, 1], [0, 1], linestyle="--")
    axes.plot([predicted[part].mean() for part in parts], [outcome[part].mean() for part in parts], marker="o")
    axes.set(xlabel="predicted quality", ylabel="observed quality", xlim=(0, 1), ylim=(0, 1))
    _save(figure, out)


def draw_learning_curves(curves: Mapping[str, Mapping[int, float]], out: Path) -> None:
    """APGR by domain against the number of labels that the classifier was adapted to."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, points in curves.items():
        axes.plot(list(points), list(points.values()), marker="o", label=name)
    axes.axhline(0.5, linestyle="--", color="grey")
    axes.set(xlabel="labels of the domain", ylabel="APGR (0.5 is random)")
    axes.legend(fontsize="small")
    _save(figure, out)


def _save(figure: Figure, out: Path) -> None:
    figure.tight_layout()
    figure.savefig(out, dpi=120, metadata={"Software": None})
    plt.close(figure)
