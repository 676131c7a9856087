"""The manifests for Kubernetes and the unit of systemd: valid by the published schemas, and consistent with Trueup."""

import configparser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.configuration import parse
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.api import version
from trueup.streams.cli.main import COMMANDS
from trueup.streams.runtime.process.ending import KILL_S
from trueup.streams.terminal import codes

ROOT = Path(__file__).parents[3] / "conf"
FOLDER = ROOT / "kubernetes"
OURS = ("kustomization.yaml", "trueup.yaml", "service-monitor.yaml")
"""Files without a schema of Kubernetes itself."""
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name not in OURS)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


@pytest.mark.parametrize("release", ["1.29", "1.33"])
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_valid_by_the_schemas_of_kubernetes(name: str, release: str) -> None:
    kubernetes_validate.validate(read(name), release, strict=True)


def test_every_manifest_is_in_the_kustomization_or_named_as_optional() -> None:
    text = (FOLDER / "kustomization.yaml").read_text()
    assert [name for name in (*MANIFESTS, "service-monitor.yaml") if name not in text] == []


def test_the_image_has_the_version_of_trueup() -> None:
    assert read("kustomization.yaml")["images"] == [{"name": "trueup", "newTag": version("trueup")}]


def test_selectors_are_the_labels_of_the_pods() -> None:
    spec = read("deployment.yaml")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    term = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    found = [
        spec["selector"]["matchLabels"],
        term["labelSelector"]["matchLabels"],
        read("service.yaml")["spec"]["selector"],
        read("network-policy.yaml")["spec"]["podSelector"]["matchLabels"],
        read("pod-disruption-budget.yaml")["spec"]["selector"]["matchLabels"],
    ]
    assert found == [labels] * len(found)
    assert read("service-monitor.yaml")["spec"]["selector"]["matchLabels"] == read("service.yaml")["metadata"]["labels"]


def test_the_configuration_is_accepted_and_has_a_standby() -> None:
    settings = parse(read("trueup.yaml"))
    container = read("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    assert (settings.ha.id, settings.section(PlacementSettings).mode) == ("trueup", "observe")
    assert settings.http.port == container["ports"][0]["containerPort"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/etc/trueup/trueup.yaml",
        "/etc/trueup/tokens",
        settings.data_dir,
    }


@pytest.fixture(scope="module")
def unit() -> configparser.RawConfigParser:
    made = configparser.RawConfigParser(strict=False)
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read_string((ROOT / "systemd" / "trueup.service").read_text())
    return made


def test_the_unit_starts_commands_that_exist(unit: configparser.RawConfigParser) -> None:
    starts = [unit["Service"][name].split()[1] for name in ("ExecStartPre", "ExecStart")]
    assert set(starts) <= set(COMMANDS)


def test_an_invalid_configuration_is_not_restarted(unit: configparser.RawConfigParser) -> None:
    assert (unit["Service"]["Restart"], int(unit["Service"]["RestartPreventExitStatus"])) == ("always", codes.USAGE)


def test_an_orderly_end_has_its_time(unit: configparser.RawConfigParser) -> None:
    grace = read("deployment.yaml")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert min(grace, int(unit["Service"]["TimeoutStopSec"])) > KILL_S
