"""The Helm chart, as `tests/chart.sh` rendered it: valid by the published schemas, and equal to the manifests."""

import hashlib
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.configuration import parse
from trueup.streams.api import version

ROOT = Path(__file__).parents[3]
CHART, MANIFESTS = ROOT / "conf" / "helm" / "trueup", ROOT / "conf" / "kubernetes"
RENDERED = Path(__file__).with_name("chart.yaml")
VALUES, WITH_VALUES, WITH_TLS = (
    Path(__file__).with_name(f"chart-{name}.yaml") for name in ("values", "with-values", "with-tls")
)
CUSTOM = "ServiceMonitor"
"""A kind without a schema of Kubernetes itself."""


def objects(rendered: Path = RENDERED) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(rendered.read_text())}


def values() -> Any:
    return yaml.safe_load(VALUES.read_text())


def pod() -> Any:
    return objects(WITH_VALUES)["Deployment"]["spec"]["template"]["spec"]


def manifest(name: str) -> Any:
    return yaml.safe_load((MANIFESTS / name).read_text())


@pytest.mark.parametrize("rendered", [RENDERED, WITH_VALUES, WITH_TLS], ids=lambda path: path.stem)
def test_the_rendering_is_that_of_the_chart(rendered: Path) -> None:
    parts = [path for pattern in ("*.yaml", "templates/*.yaml", "files/*.yml") for path in sorted(CHART.glob(pattern))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*parts, VALUES))).hexdigest()
    found = re.search(r"digest: ([0-9a-f]{64})", rendered.read_text())
    assert found, "the first line names the digest"
    assert found[1] == digest, "run `make chart`"


@pytest.mark.parametrize("release", ["1.29", "1.33"])
@pytest.mark.parametrize("kind", sorted({*objects()} - {CUSTOM}))
def test_an_object_is_valid_by_the_schemas_of_kubernetes(kind: str, release: str) -> None:
    kubernetes_validate.validate(objects()[kind], release, strict=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NetworkPolicy", "network-policy.yaml"),
        ("PodDisruptionBudget", "pod-disruption-budget.yaml"),
        ("Service", "service.yaml"),
        (CUSTOM, "service-monitor.yaml"),
    ],
)
def test_an_object_is_that_of_the_manifests(kind: str, name: str) -> None:
    assert objects()[kind]["spec"] == manifest(name)["spec"]


def test_the_deployment_is_that_of_the_manifests() -> None:
    ours, theirs = objects()["Deployment"]["spec"], manifest("deployment.yaml")["spec"]
    checksum = ours["template"]["metadata"].pop("annotations")
    image = ours["template"]["spec"]["containers"][0].pop("image")
    theirs["template"]["spec"]["containers"][0].pop("image")
    assert (ours, [*checksum], image) == (theirs, ["checksum/config"], f"trueup:{version('trueup')}")


def test_the_configuration_is_that_of_the_manifests() -> None:
    found = yaml.safe_load(objects()["ConfigMap"]["data"]["trueup.yaml"])
    assert parse(found) == parse(manifest("trueup.yaml"))


def test_the_deployment_with_values_is_valid_by_the_schemas_of_kubernetes() -> None:
    kubernetes_validate.validate(objects(WITH_VALUES)["Deployment"], "1.33", strict=True)


def test_the_deployment_with_tls_is_valid_by_the_schemas_of_kubernetes() -> None:
    kubernetes_validate.validate(objects(WITH_TLS)["Deployment"], "1.33", strict=True)


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_of_an_instance_with_a_certificate_uses_tls(probe: str) -> None:
    container = objects(WITH_TLS)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_the_address_of_an_instance_with_a_certificate_is_of_https() -> None:
    container = objects(WITH_TLS)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "TRUEUP__HA__ADDRESS", "value": "https://$(POD_IP):8480"} in container["env"]


def test_a_scrape_of_an_instance_with_a_certificate_verifies_the_name_of_the_service() -> None:
    (endpoint,) = objects(WITH_TLS)[CUSTOM]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == (
        "https",
        {"serverName": "trueup.trueup.svc", "ca": {"secret": {"name": "authorities", "key": "ca.crt"}}},
    )


def test_pull_secrets_are_those_of_the_pod() -> None:
    assert pod()["imagePullSecrets"] == values()["imagePullSecrets"]


@pytest.mark.parametrize(("key", "value"), [("env", "extraEnv"), ("volumeMounts", "extraVolumeMounts")])
def test_what_the_values_add_follows_what_the_container_has(key: str, value: str) -> None:
    plain = objects()["Deployment"]["spec"]["template"]["spec"]["containers"][0][key]
    assert pod()["containers"][0][key] == [*plain, *values()[value]]


def test_volumes_of_the_values_are_those_of_the_pod() -> None:
    assert pod()["volumes"][-1:] == values()["extraVolumes"]


def test_the_rule_has_the_alerts_with_links_to_the_runbooks() -> None:
    alerts = (CHART.parents[1] / "prometheus" / "alerts.yml").read_text()
    linked = alerts.replace("runbook_url: docs/", f"runbook_url: {values()['runbooks']}/")
    assert objects(WITH_VALUES)["PrometheusRule"]["spec"] == yaml.safe_load(linked)


def test_the_rule_is_an_option() -> None:
    assert "PrometheusRule" not in objects()


@pytest.mark.parametrize("kind", [CUSTOM, "PrometheusRule"])
def test_a_prometheus_can_select_by_labels(kind: str) -> None:
    assert objects(WITH_VALUES)[kind]["metadata"]["labels"] == values()["monitoringLabels"]


def test_alerts_and_boards_select_the_job_of_a_release_of_any_name() -> None:
    files = [ROOT / "conf/prometheus/alerts.yml", *(ROOT / "conf" / "grafana").glob("*.json")]
    jobs = {job for file in files for job in re.findall(r'job=\\?"(\w+)', file.read_text())}
    relabelings = objects(WITH_VALUES)[CUSTOM]["spec"]["endpoints"][0]["relabelings"]
    assert {each["replacement"] for each in relabelings if each["targetLabel"] == "job"} == jobs


def test_the_chart_has_the_version_of_trueup() -> None:
    found = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (found["version"], found["appVersion"]) == (version("trueup"), version("trueup"))
