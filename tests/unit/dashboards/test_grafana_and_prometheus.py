"""Every metric, label and column that a panel or an alert names exists."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from dashboards.grafana_boards import BOARDS, HERE, as_json
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series import Counts, Distribution
from tests.memory_ledger import MemoryLedger

RULES = HERE.parent / "prometheus" / "breakeven.rules.yml"
CONFIG = RULES.with_name("prometheus.yml")
METRIC = re.compile(r"\b(breakeven_[a-z0-9_]+)")
LABELS = re.compile(r"by \(([^)]*)\)|\{(\w+)[!=~]")


def exported() -> dict[str, set[str]]:
    """Series name -> its labels."""
    found: dict[str, set[str]] = {}
    metrics = Metrics(MemoryLedger())
    for collector in metrics.registry._collector_to_names:  # pyright: ignore[reportPrivateUsage]
        name, labels = _named(collector)
        if isinstance(collector, (Counter, Counts)):
            found[f"{name}_total"] = labels
        elif isinstance(collector, (Histogram, Distribution)):
            found |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


def _named(collector: object) -> tuple[str, set[str]]:
    if isinstance(collector, Distribution):
        return collector._name, {"model"}  # pyright: ignore[reportPrivateUsage]
    if isinstance(collector, Counts):
        name, labels = collector._name, set(collector._labels)  # pyright: ignore[reportPrivateUsage]
        return name.removesuffix("_total"), labels
    assert isinstance(collector, (Counter, Gauge, Histogram))
    return collector._name, set(collector._labelnames)  # pyright: ignore[reportPrivateUsage]


def expressions() -> Iterator[tuple[str, str]]:
    for name, (_, panels) in BOARDS.items():
        for panel in panels:
            if not panel.is_sql:
                yield from ((f"{name}: {panel.title}", query) for _, query in panel.queries)
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_metrics_and_labels_exist(where: str, expression: str) -> None:
    series = exported()
    named = METRIC.findall(expression)
    assert set(named) <= series.keys(), where
    used = {label.strip() for by, one in LABELS.findall(expression) for label in (by or one).split(",")}
    if named:
        assert used <= set.intersection(*(series[name] for name in named)), where


@pytest.mark.parametrize("name", list(BOARDS))
def test_the_committed_dashboard_is_the_generated_one(name: str) -> None:
    assert (HERE / f"{name}.json").read_text() == as_json(name), "run `python -m dashboards.grafana_boards`"


def promtool(*command: str) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool; Debian's package `prometheus` has it")
    done = subprocess.run([tool, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [("check", "rules", str(RULES)), ("check", "config", str(CONFIG))])
def test_promtool_takes_the_files(command: tuple[str, ...]) -> None:
    promtool(*command)


@pytest.mark.parametrize(
    ("scraped", "minutes", "fires"),
    [
        ("_x4 1x200", 2, True),  # one request, counted before the series was first scraped
        ("_x4 1x200", 30, False),
        ("0x80 1x200", 21, True),
        ("0x80 1x80 _x8 0x200", 50, False),  # after a restart
        ("0x200", 30, False),
    ],
)
def test_requests_without_a_price_are_told_from_the_first_on(
    tmp_path: Path, scraped: str, minutes: int, fires: bool
) -> None:
    [rule] = [
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == "BreakevenUnpricedRequests"
    ]
    said = {name: text.replace("{{ $labels.model }}", "new") for name, text in rule["annotations"].items()}
    alert = {"exp_labels": {"model": "new", **rule["labels"]}, "exp_annotations": said}
    asked = {"eval_time": f"{minutes}m", "alertname": rule["alert"], "exp_alerts": [alert] if fires else []}
    series = [{"series": 'breakeven_unpriced_requests_total{model="new"}', "values": scraped}]
    test = {"interval": "15s", "input_series": series, "alert_rule_test": [asked]}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", str(file))


def test_every_alert_says_what_happened() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["labels"]["severity"] in ("page", "ticket")


def test_panels_of_one_time_range_sum_the_same_hours() -> None:
    """A range can begin within a day: daily sums would leave that day out and disagree with other panels."""
    queries = [query for panel in BOARDS["cost"][1] if panel.is_sql for _, query in panel.queries]
    ranged = [query for query in queries if "$__unixEpochFilter" in query]
    assert len(ranged) > 1
    assert {query.rpartition(" FROM ")[2].split()[0] for query in ranged} == {"finance_hours"}
