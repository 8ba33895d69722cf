"""Counters and histograms that cost one addition per request; prometheus_client only displays them.

Its own take a lock and four calls per figure, and a request has six or more. These are used from one thread.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Counts(Collector):
    """A counter by labels: add to `by_labels`. The displayed value is the count divided by `parts`, so counts can be
    whole numbers."""

    def __init__(self, name: str, text: str, labels: Sequence[str], *, parts: int = 1) -> None:
        self.by_labels: defaultdict[tuple[str, ...], float] = defaultdict(int)
        self._name, self._text, self._labels, self._parts = name, text, labels, parts

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self.by_labels.items():
            family.add_metric(labels, count / self._parts)
        yield family


class Distribution(Collector):
    """A histogram by model."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text, self._bounds = name, text, bounds
        self._named = [floatToGoString(bound) for bound in (*bounds, float("inf"))]
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(self._named))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def observe(self, model: str, value: float) -> None:
        self._counts[model][bisect_left(self._bounds, value)] += 1
        self._sums[model] += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=("model",))
        for model, counts in self._counts.items():
            family.add_metric((model,), list(zip(self._named, accumulate(counts), strict=True)), self._sums[model])
        yield family
