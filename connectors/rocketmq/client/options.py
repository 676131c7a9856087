"""Client settings of a RocketMQ cluster: addresses of its name servers, credentials, TLS, time-outs."""

from collections.abc import Mapping

from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client.connection import ANSWER_S, ConnectionOptions
from trueup.connectors.rocketmq.protocol.frames import Credentials
from trueup.connectors.tls import tls_of
from trueup.state.common.errors import BadSettings
from trueup.state.common.tls import KEYS as TLS_KEYS

_USER = ("access.key", "secret.key", "security.token")
_TIMEOUT = "timeout.ms"
REPLICATOR = "replicator.source"
"""The name of the cluster in the marks of RocketMQ's own replicator: cloud_cluster_region."""
KEYS = (*_USER, _TIMEOUT, REPLICATOR, *TLS_KEYS)


def access_of(endpoint: Endpoint) -> ConnectionOptions:
    """Credentials, TLS and time-out of a cluster's options. Raises `BadSettings` with each invalid key."""
    options = endpoint.options
    if lines := problems(endpoint):
        raise BadSettings(lines)
    tls = tls_of({key: value for key, value in options.items() if key in TLS_KEYS})
    key, secret, token = (options.get(name, "") for name in _USER)
    timeout_s = float(options.get(_TIMEOUT, ANSWER_S * 1000)) / 1000
    return ConnectionOptions(Credentials(key, secret, token) if key else None, tls, timeout_s)


def problems(endpoint: Endpoint) -> list[str]:
    """Problems of the address and options of a cluster, one line for each; nothing is connected."""
    place, options = f"rocketmq.{endpoint.name}", endpoint.options
    lines = [f"{place}.{key}: expected one of {', '.join(KEYS)}" for key in sorted(set(options) - set(KEYS))]
    if bool(options.get("access.key")) != bool(options.get("secret.key")):
        lines.append(f"{place}: expected access.key and secret.key, or neither")
    if not _is_time(options):
        lines.append(f"{place}.{_TIMEOUT}: expected milliseconds, found {options[_TIMEOUT]!r}")
    return lines + [
        f"{place}.namesrv: expected host:port[;host:port...], found {address!r}"
        for address in addresses_of(endpoint)
        if not _is_address(address)
    ]


def addresses_of(endpoint: Endpoint) -> list[str]:
    """The addresses of the name servers."""
    return [address.strip() for address in endpoint.address.replace(";", ",").split(",")]


def _is_time(options: Mapping[str, str]) -> bool:
    text = options.get(_TIMEOUT, "1")
    return text.isdecimal() and int(text) > 0


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal()
