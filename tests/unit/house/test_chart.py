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
CUSTOM = "ServiceMonitor"
"""A kind without a schema of Kubernetes itself."""


def objects() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(RENDERED.read_text())}


def manifest(name: str) -> Any:
    return yaml.safe_load((MANIFESTS / name).read_text())


def test_the_rendering_is_that_of_the_chart() -> None:
    parts = [*sorted(CHART.glob("*.yaml")), *sorted((CHART / "templates").glob("*.yaml"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()
    found = re.search(r"digest: ([0-9a-f]{64})", RENDERED.read_text())
    assert found, "the first line names the digest"
    assert found[1] == digest, "run `make chart`"


@pytest.mark.parametrize("release", ["1.29", "1.33"])
@pytest.mark.parametrize("kind", sorted({*objects()} - {CUSTOM}))
def test_an_object_is_valid_by_the_schemas_of_kubernetes(kind: str, release: str) -> None:
    kubernetes_validate.validate(objects()[kind], release, strict=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("NetworkPolicy", "network-policy.yaml"), ("PodDisruptionBudget", "pod-disruption-budget.yaml"),
     ("Service", "service.yaml"), (CUSTOM, "service-monitor.yaml")],
)  # fmt: skip
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


def test_the_chart_has_the_version_of_trueup() -> None:
    found = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (found["version"], found["appVersion"]) == (version("trueup"), version("trueup"))
