"""The registry of systems that links can connect, and of their copiers.

The pump copies records between any two systems. A pair may have a path of its own, which is faster because it uses
properties of both systems (Kafka's ``batches`` copies whole record batches without decoding them). Modules are named,
not imported: a worker loads only the modules that its lease needs.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from trueup.connectors.contract import Endpoint
from trueup.state.common.errors import BadSettings
from trueup.state.replication.anomalies import PartitionFacts as Qualities
from trueup.state.replication.anomalies import choose
from trueup.state.replication.clusters import clusters_of
from trueup.state.replication.config_sync import Setting
from trueup.state.settings.kafka import KAFKA as KAFKA_SECTION
from trueup.state.settings.rocketmq import ROCKETMQ as ROCKETMQ_SECTION
from trueup.state.settings.section import Sections
from trueup.streams.runtime.named import imported

if TYPE_CHECKING:
    from trueup.connectors.replication.config_sync import TopicPairs
    from trueup.connectors.replication.ports import ClusterAdmin
    from trueup.connectors.replication.pump import Pump

KAFKA, ROCKETMQ = KAFKA_SECTION.name, ROCKETMQ_SECTION.name
SECTIONS = (KAFKA_SECTION, ROCKETMQ_SECTION)
"""The section of the settings of each system, which declares its clusters."""
ADMINS = {
    KAFKA: "trueup.connectors.kafka.replication.admin:KafkaAdmin",
    ROCKETMQ: "trueup.connectors.rocketmq.replication.admin:RocketMqAdmin",
}
"""The `ClusterAdmin` of each system."""
COPIERS = {(KAFKA, KAFKA, "batches"): "trueup.connectors.kafka.replication.connector:Batches"}
"""Connectors that copy without the pump, by system of the source, system of the target, and path."""

MEDIA = {
    KAFKA: "trueup.connectors.kafka.replication.medium:MEDIUM",
    ROCKETMQ: "trueup.connectors.rocketmq.replication.medium:MEDIUM",
}
"""Reader and writer of each system, for the pump."""
PUMP = "trueup.streams.replication.clusters:pump"


def pump() -> "Pump":
    """The connector of all pairs for the path ``records``."""
    from trueup.connectors.replication.pump import Pump

    return Pump(lambda system: imported(MEDIA[system]))


def endpoint_of(sections: Sections, cluster: str, env: Mapping[str, str] = os.environ) -> Endpoint:
    """A declared cluster as an end of a link, with the settings that are in ``env``. Raises `BadSettings`."""
    system, declared = clusters_of(sections)[cluster]
    if unset := [variable for variable in declared.variables.values() if not env.get(variable)]:
        raise BadSettings([f"{system}.{cluster}: expected the environment variables {', '.join(unset)}; found none"])
    secrets = {option: env[variable] for option, variable in declared.variables.items()}
    options = {**declared.options, **secrets}
    return Endpoint(cluster, declared.address, declared.bit, options, system, declared.security)


def admin_of(endpoint: Endpoint) -> "ClusterAdmin":
    """Create the administrative client of a cluster."""
    admin: ClusterAdmin = imported(ADMINS[endpoint.system])(endpoint)
    return admin


def connector_of(source: str, target: str, path: str) -> str:
    """The name of the connector for a pair of systems and a path."""
    return COPIERS.get((source, target, path), PUMP)


def paths_of(source: str, target: str) -> tuple[str, ...]:
    """The paths for a pair of systems."""
    return (*(path for system, other, path in COPIERS if (system, other) == (source, target)), "records")


def hardest(seen: "TopicPairs", called: Mapping[str, str]) -> tuple[str, str, str, int, int]:
    """Compression at both ends, timestamp type at the target, and maximum batch sizes at both ends, of the topic that
    is hardest to copy in whole batches; the first such topic. Other systems do not have these settings of Kafka."""
    none, pairs = ("", "", "", -1, -1), list[tuple[str, str, str, int, int]]()
    for name, target in called.items():
        if name in seen.source and target in seen.target:
            here, there = seen.source[name].configs, seen.target[target].configs
            pairs.append(
                (
                    _value(here, "compression.type"),
                    _value(there, "compression.type"),
                    _value(there, "message.timestamp.type"),
                    int(_value(here, "max.message.bytes") or -1),
                    int(_value(there, "max.message.bytes") or -1),
                )
            )
    hard = (pair for pair in pairs if choose(Qualities("auto", False, 2, -1.0, *pair)).path == "records")
    return next(hard, pairs[0] if pairs else none)


def compacted(seen: "TopicPairs", called: Collection[str]) -> bool:
    """Whether the source compacts all of these topics that it has."""
    policies = [_value(seen.source[name].configs, "cleanup.policy") for name in called if name in seen.source]
    return bool(policies) and all("compact" in policy for policy in policies)


def _value(configs: Mapping[str, Setting], name: str) -> str:
    return configs[name].value if name in configs else ""
