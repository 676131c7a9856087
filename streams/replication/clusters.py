"""The systems that links can join, and who copies from one to the other.

A pair of systems may have paths of its own, which are faster as they know both ends (``batches`` of Kafka copies whole
record batches unopened). Modules are named, not imported: a worker loads what its lease needs.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trueup.connectors.contract import Endpoint
from trueup.connectors.replication.config_sync import Seen
from trueup.connectors.replication.ports import ClusterAdmin
from trueup.connectors.replication.pump import Pump
from trueup.state.replication.anomalies import PartitionFacts as Qualities
from trueup.state.replication.anomalies import choose
from trueup.state.replication.config_sync import Setting

KAFKA = "kafka"
ADMINS = {KAFKA: "trueup.connectors.kafka.replication.admin:KafkaAdmin"}
"""The `ClusterAdmin` of each system."""
COPIERS = {
    (KAFKA, KAFKA, "batches"): "trueup.connectors.kafka.replication.connector:Batches",
    (KAFKA, KAFKA, "records"): "trueup.connectors.kafka.replication.records.copier:Records",
}
"""Connector by system of the source, system of the target, and path."""

MEDIA = {KAFKA: "trueup.connectors.kafka.replication.medium:MEDIUM"}
"""How each system is read and written where a pair has no copier of its own."""
PUMP = "trueup.streams.replication.clusters:pump"


def pump() -> Pump:
    """The connector of all pairs without one of their own. They copy by the path ``records``."""
    return Pump({system: imported(name) for system, name in MEDIA.items()})


def admin_of(endpoint: Endpoint) -> ClusterAdmin:
    """The administrative side of a cluster."""
    made: ClusterAdmin = imported(ADMINS[endpoint.system])(endpoint)
    return made


def connector_of(source: str, target: str, path: str) -> str:
    """Name of the connector that copies from one system to another by a path."""
    return COPIERS.get((source, target, path), PUMP)


def paths_of(source: str, target: str) -> tuple[str, ...]:
    """The paths from one system to another."""
    return tuple(path for one, other, path in COPIERS if (one, other) == (source, target)) or ("records",)


def imported(name: str) -> Any:
    """What ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def hardest(seen: Seen, called: Mapping[str, str]) -> tuple[str, str, str, int, int]:
    """Compression at both ends, timestamps at the target, largest batches at both ends: of the topic that is hardest
    to copy in whole batches, the first where one is as another. Settings by Kafka's names, which others have not."""
    none, found = ("", "", "", -1, -1), list[tuple[str, str, str, int, int]]()
    for name, target in called.items():
        if name in seen.source and target in seen.target:
            here, there = seen.source[name].configs, seen.target[target].configs
            found.append((
                _value(here, "compression.type"), _value(there, "compression.type"),
                _value(there, "message.timestamp.type"), int(_value(here, "max.message.bytes") or -1),
                int(_value(there, "max.message.bytes") or -1),
            ))  # fmt: skip
    hard = (one for one in found if choose(Qualities("auto", False, 2, -1.0, *one)).path == "records")
    return next(hard, found[0] if found else none)


def _value(configs: Mapping[str, Setting], name: str) -> str:
    return configs[name].value if name in configs else ""
