"""The section ``kafka`` of the settings: clusters for links and log directories."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trueup.state.common.options import key
from trueup.state.common.systems import cluster_bit
from trueup.state.settings.kafka_security import DOC, problems
from trueup.state.settings.section import Draft, Section


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """A Kafka cluster. Links and logdirs refer to it by its name."""

    bootstrap: str = key(doc="Kafka brokers, host:port[,...]")
    bit: int = cluster_bit()
    options: dict[str, str] = key(
        dict, "librdkafka settings of connections and clients, for example socket.timeout.ms", secret=True
    )
    security: dict[str, str] = key(dict, DOC, secret=True)

    @property
    def address(self) -> str:
        """The bootstrap servers."""
        return self.bootstrap

    @property
    def variables(self) -> Mapping[str, str]:
        """None: no setting is in an environment variable."""
        return {}


def check(draft: Draft) -> Iterator[str]:
    """The problems of the security of each cluster."""
    for name, cluster in draft.table(KafkaCluster).items():
        if cluster:
            yield from problems(cluster.security, cluster.options, f"kafka.{name}")


KAFKA = Section(
    "kafka",
    KafkaCluster,
    entries=("east", "west: {bootstrap: '127.0.0.1:9093', bit: 1}"),
    examples={"bootstrap": "127.0.0.1:9092", "bit": "0"},
    check=check,
)
"""It is checked with the clusters of all systems; see `state.replication.clusters`."""
