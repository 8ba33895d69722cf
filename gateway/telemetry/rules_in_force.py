"""`breakeven_rules`: the version this worker decides by, and an active one that it had to refuse."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

RULES = "breakeven_rules"
IN_FORCE, REFUSED = "in_force", "refused"


class Versions(Protocol):
    """The rules of this process."""

    @property
    def applied(self) -> str | None: ...
    @property
    def refused(self) -> str | None: ...


class RulesInForce(Collector):
    """One series of value 1 for each; a fleet that disagrees shows several versions in force."""

    def __init__(self, rules: Versions) -> None:
        self._rules = rules

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            RULES,
            "1: what this worker decides by, or the active version that is not valid here.",
            labels=("state", "version"),
        )
        for state, version in ((IN_FORCE, self._rules.applied), (REFUSED, self._rules.refused)):
            if version is not None:
                family.add_metric((state, version), 1.0)
        yield family
