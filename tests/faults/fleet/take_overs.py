"""The metrics of newly activated rules: how often each worker of a fleet adopted some, and after how many seconds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import httpx
from prometheus_client.parser import text_string_to_metric_families

NAME = "breakeven_rules_taken_over_seconds"


@dataclass(frozen=True, slots=True)
class TakeOvers:
    """Adoptions by one worker since it started; `seconds` is their sum."""

    count: int = 0
    seconds: float = 0.0


NEVER = TakeOvers()


def take_overs(urls: Iterable[str]) -> dict[tuple[str, str], TakeOvers]:
    """By replica and worker, for workers that adopted any; each worker's metrics cover its whole replica."""
    found: dict[tuple[str, str], TakeOvers] = {}
    for url in urls:
        text = httpx.get(f"{url}/metrics", timeout=300, trust_env=False).text
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        for sample in samples:
            if sample.name not in (f"{NAME}_count", f"{NAME}_sum") or not sample.value:
                continue
            worker = (url, sample.labels["worker"])
            before = found.get(worker, NEVER)
            if sample.name.endswith("_count"):
                found[worker] = replace(before, count=int(sample.value))
            else:
                found[worker] = replace(before, seconds=sample.value)
    return found
