"""The Compose stack: valid by the Compose Specification, pinned, and consistent with the sandbox."""

import ipaddress
import json
import re
import subprocess
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.configuration import load
from trueup.connectors.embedded.jars import sets
from trueup.state.placement.settings import PlacementSettings

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCRIPT = ROOT / "conf" / "compose" / "racks.sh"


def bookies() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in SERVICES.items() if name.startswith("bookie")}


def test_it_is_valid_by_the_specification() -> None:
    """Uses the schema of the Compose Specification that check-jsonschema contains."""
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = Draft202012Validator(json.loads(schema.read_text()))
    assert [error.message for error in validator.iter_errors(COMPOSE)] == []


def test_it_has_what_the_sandbox_has() -> None:
    kinds = Counter(name.rstrip("0123456789") for name in SERVICES)
    assert kinds == {"zookeeper": 1, "bookie": 6, "autorecovery": 2, "kafka": 1, "trueup": 1}


def test_images_are_pinned_to_the_versions_of_the_locks() -> None:
    images = {str(service["image"]) for service in SERVICES.values()}
    assert images == {"apache/bookkeeper:4.17.3", "apache/kafka:4.3.1", "zookeeper:3.9.3", "trueup:0.1.0"}
    assert {"bookkeeper-4.17.3", "kafka-4.3.1"} <= set(sets())


def test_zookeeper_is_the_one_of_the_locked_set() -> None:
    lock = (files("trueup.connectors.embedded") / "locks" / "bookkeeper-4.17.3.lock").read_text()
    assert "org.apache.zookeeper:zookeeper:3.9.3" in lock


def test_bookies_stand_in_two_racks_by_the_script_that_all_use() -> None:
    addresses = [bookie["networks"]["stack"]["ipv4_address"] for bookie in bookies().values()]
    done = subprocess.run([SCRIPT, *addresses], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/rack1"] * 3 + ["/rack2"] * 3


def test_the_script_answers_as_bookkeeper_asks_first() -> None:
    assert subprocess.run([SCRIPT], capture_output=True, check=True).stdout == b""


def test_a_bookie_is_called_by_its_address() -> None:
    invalid = [
        name
        for name, bookie in bookies().items()
        if bookie["environment"]["BK_advertisedAddress"] != bookie["networks"]["stack"]["ipv4_address"]
    ]
    assert invalid == []


def test_addresses_are_in_the_subnet_and_used_once() -> None:
    subnet = ipaddress.ip_network(COMPOSE["networks"]["stack"]["ipam"]["config"][0]["subnet"])
    used = [ipaddress.ip_address(service["networks"]["stack"]["ipv4_address"]) for service in SERVICES.values()]
    assert (len(set(used)), all(address in subnet for address in used)) == (len(SERVICES), True)


def test_trueups_settings_can_be_used() -> None:
    env = {name: str(value) for name, value in SERVICES["trueup"]["environment"].items()}
    settings = load(None, env, {})
    assert (settings.section(PlacementSettings).mode, settings.cluster.autorecovery, settings.racks.script) == (
        "observe",
        ["autorecovery1:8080", "autorecovery2:8080"],
        "/racks.sh",
    )


def test_only_this_machine_can_reach_what_is_published() -> None:
    ports = [str(port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_workers_have_the_repair_flag() -> None:
    flag = "repairedPlacementPolicyNotAdheringBookieEnabled=true"
    assert [flag in SERVICES[f"autorecovery{n}"]["entrypoint"][2] for n in (1, 2)] == [True, True]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    copied = {source for line in image("COPY") if not line[0].startswith("--from=") for source in line[:-1]}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == let_in
    assert [name for name in sorted(copied - {"README.md"}) if not (ROOT / name).exists()] == []


def test_the_base_of_the_image_is_an_exact_version() -> None:
    bases = [line[0] for line in image("FROM")]
    assert [
        base for base in bases if not re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    ] == []


def test_the_image_has_no_packages_of_tests() -> None:
    last = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    files = re.findall(r"--requirement (\S+)", last)
    locked = {name for file in files for name in pinned(file)}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dev = {re.split(r"[^\w-]", one)[0] for one in wanted["optional-dependencies"]["dev"]}
    runtime = {re.split(r"[^\w-]", one)[0] for one in wanted["dependencies"]}
    assert (files, runtime - locked) == (["requirements.image.lock"], set())
    assert locked & dev == {"cryptography", "psutil"}  # PyJWT and jgo also need them


def test_the_image_has_the_versions_of_the_tests() -> None:
    tested = pinned("requirements.lock")
    image_has = pinned("requirements.image.lock")
    assert {name: version for name, version in image_has.items() if tested.get(name) != version} == {}


def pinned(file: str) -> dict[str, str]:
    """Version by package."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / file).read_text(), re.MULTILINE))


def image(instruction: str) -> list[list[str]]:
    """The words of each line of the Dockerfile with this instruction."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{instruction} ")]
