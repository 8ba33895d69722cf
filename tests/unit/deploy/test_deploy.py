"""Every file of deploy/ before its own linter, and against what the gateway really has: paths, ports, settings, names.

Helm lints and renders the chart, and compose is held against its schema, in `make test-clients`.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.cli.serve import fleet
from gateway.config.home import Home
from gateway.config.settings import load_settings

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent


def loaded(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def test_the_dockerfile_passes_hadolint() -> None:
    done = subprocess.run([BIN / "hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_holds_every_room_that_the_distribution_has() -> None:
    built = re.findall(r"^COPY (\w+) \./\1$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    packages = re.search(r"^packages = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages is not None
    assert sorted(built) == sorted(re.findall(r'"(\w+)"', packages[1]))
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{room}" for room in built} <= set(kept)


def test_the_image_asks_for_extras_that_exist() -> None:
    extras = re.search(r"^ARG EXTRAS=(.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert extras is not None
    text = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE), extra


@pytest.mark.parametrize(
    ("extras", "is_installed"),
    [("engine", True), ("ui,engine", True), ("engine,ui", True), ("postgres,ui", False), ("", False)],
)
def test_an_image_with_the_engine_keeps_a_compiler(extras: str, is_installed: bool, tmp_path: Path) -> None:
    final = (DEPLOY / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    [step] = re.findall(r"^RUN (case (?:.*\\\n)+.*)$", final, re.MULTILINE)
    asked = tmp_path / "asked"
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "rm").write_text("#!/bin/sh\n")
    for command in ("apt-get", "rm"):
        (tmp_path / command).chmod(0o755)
    subprocess.run(["/bin/sh", "-ec", step], env={"EXTRAS": extras, "PATH": str(tmp_path)}, check=True)
    assert (asked.exists() and "g++" in asked.read_text()) is is_installed


def test_only_the_base_names_the_images_python() -> None:
    instructions = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^.*python:?3.*$", instructions, re.MULTILINE) == ["ARG BASE=python:3.12.11-slim-bookworm"]


def test_yaml_passes_yamllint() -> None:
    command = [BIN / "yamllint", "--strict", "-c", DEPLOY / ".yamllint", DEPLOY / "compose"]
    files = [DEPLOY / "chart/values.yaml", DEPLOY / "chart/Chart.yaml"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_file_that_compose_mounts_exists() -> None:
    folder = DEPLOY / "compose"
    for service in loaded(folder / "compose.yaml")["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (folder / source).exists(), source


@pytest.mark.parametrize("source", ["compose", "chart"])
def test_the_configuration_is_the_gateways(source: str, tmp_path: Path) -> None:
    text = (
        (DEPLOY / "compose/breakeven.yaml").read_text()
        if source == "compose"
        else str(loaded(DEPLOY / "chart/values.yaml")["config"])
    )
    (tmp_path / "breakeven.yaml").write_text(text)
    settings = load_settings(Home(tmp_path))
    assert (settings.server.host, settings.engine.is_enabled) == ("0.0.0.0", False)


def test_grafana_is_given_what_its_data_sources_ask_for_and_may_read_what_its_boards_read() -> None:
    sources = (ROOT / "dashboards/grafana/provisioning/datasources/breakeven.yaml").read_text(encoding="utf-8")
    given = loaded(ROOT / "deploy/compose/compose.yaml")["services"]["grafana"]["environment"]
    assert set(re.findall(r"\$(\w+)", sources)) <= set(given)
    [granted] = re.findall(r"GRANT SELECT ON (.*) TO grafana;", sources)
    read = re.findall(
        r"FROM (finance_\w+|hourly|daily|entries)", (ROOT / "dashboards/grafana/cost.json").read_text("utf-8")
    )
    assert set(read) <= set(granted.split(", "))
    assert f"GRANT SELECT ON {granted} TO grafana;" in (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")


def test_the_time_to_stop_is_longer_than_a_drain() -> None:
    compose = loaded(DEPLOY / "compose/compose.yaml")["services"]["gateway"]["stop_grace_period"]
    values = loaded(DEPLOY / "chart/values.yaml")
    chart = values["terminationGracePeriodSeconds"] - values["preStopSeconds"]
    assert min(int(compose.removesuffix("s")), chart) > fleet.WORKER_STOP_SECONDS


def test_the_charts_values_follow_their_schema() -> None:
    schema, values = loaded(DEPLOY / "chart/values.schema.json"), loaded(DEPLOY / "chart/values.yaml")
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "replica": 3}, schema)
