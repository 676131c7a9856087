"""The section ``rocketmq`` of the settings: clusters for links."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trueup.state.common.options import key, shown
from trueup.state.common.systems import cluster_bit
from trueup.state.settings.section import Draft, Section

_TLS, _OTHERS = "tls.", ("timeout.ms", "replicator.source")


@dataclass(frozen=True, slots=True)
class RocketMqCluster:
    """A RocketMQ cluster, version 5.3 or later. Links refer to it by its name."""

    namesrv: str = key(doc="Name servers, host:port[;host:port...], as in namesrvAddr; commas are also accepted")
    bit: int = cluster_bit()
    access_key_env: str = key(
        "", "Environment variable that contains the name of the user (ACL 2.0); empty: requests are not signed"
    )
    secret_key_env: str = key("", "Environment variable that contains the password of the user")
    options: dict[str, str] = key(
        dict,
        "Connections: tls.ca (PEM file, or system), tls.certificate, tls.key, tls.key.password, tls.check.host, "
        "timeout.ms (time for a response); replicator.source: the cluster's name in the marks of RocketMQ's own "
        "replicator, cloud_cluster_region",
        secret=True,
    )

    @property
    def address(self) -> str:
        """The name servers, separated by commas."""
        return self.namesrv.replace(";", ",")

    @property
    def security(self) -> Mapping[str, str]:
        """Empty: it is in ``options``."""
        return {}

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variable of each client setting that is in one."""
        named = {"access.key": self.access_key_env, "secret.key": self.secret_key_env}
        return {name: variable for name, variable in named.items() if variable}


def check(draft: Draft) -> Iterator[str]:
    """The problems of each cluster; those of all systems together: `state.replication.clusters`."""
    for name, cluster in _valid(draft):
        path = f"rocketmq.{name}"
        if bool(cluster.access_key_env) != bool(cluster.secret_key_env):
            leaves = ("access_key_env", "secret_key_env")
            given, other = leaves if cluster.access_key_env else leaves[::-1]
            yield f"{path}.{other}: expected the name of a variable because {given} is set; found nothing"
        for option in cluster.options:
            if not option.startswith(_TLS) and option not in _OTHERS:
                yield f"{path}.options: expected keys {_TLS}*, {', '.join(_OTHERS)}; found {shown(option)}"


def check_env(draft: Draft, env: Mapping[str, str]) -> Iterator[str]:
    """A problem for each variable that a cluster names and that is not set."""
    for name, cluster in _valid(draft):
        for leaf, variable in (("access_key_env", cluster.access_key_env), ("secret_key_env", cluster.secret_key_env)):
            if variable and not env.get(variable):
                yield f"rocketmq.{name}.{leaf}: expected a variable that is set; found {shown(variable)} unset"


def _valid(draft: Draft) -> Iterator[tuple[str, RocketMqCluster]]:
    return ((name, cluster) for name, cluster in draft.table(RocketMqCluster).items() if cluster)


ROCKETMQ = Section(
    "rocketmq",
    RocketMqCluster,
    entries=("hangzhou", "shanghai: {namesrv: '127.0.0.1:9976', bit: 3}"),
    examples={"namesrv": "127.0.0.1:9876", "bit": "2"},
    check=check,
    check_env=check_env,
)
"""It is also checked with the clusters of all systems; see `state.replication.clusters`."""
