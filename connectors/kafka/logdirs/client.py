"""Log directories of a Kafka cluster: observation of every broker, moves, throttles and cordons.

DescribeLogDirs (KIP-113; bytes since KIP-827, cordons since KIP-1066), AlterReplicaLogDirs (KIP-113), and two dynamic
settings of a broker: ``replica.alter.log.dirs.io.max.bytes.per.second`` and ``cordoned.log.dirs``. kafka-python
neither raises refusals of a broker nor checks the error of a whole response: this module does both for directories, and
`CleanClient` for settings.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.admin import DescribeLogDirsRequest

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.kafka_python import CleanClient
from trueup.connectors.kafka.client.options import kafka_python
from trueup.connectors.replaced import Replaced
from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown
from trueup.state.logdirs.model import Broker, LogDir, Replicas

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
CORDON = "cordoned.log.dirs"
_ALL = "*"
"""The value of `CORDON` that cordons all directories (KIP-1066)."""
_TOGETHER = 16
_RECORDED = (3, 9)
"""UNKNOWN_TOPIC_OR_PARTITION and REPLICA_NOT_AVAILABLE: the broker uses the directory when the replica is created."""
_NOT_CREATED = (17, 36, 37, 38, 39, 40, 44)
"""INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION."""
_AWAY = "it is down: registered, but no other broker has its address"
_WHY = {
    17: ("refused", "the name of the topic is too long for a future replica's directory"),
    29: ("failed", "no permission: ALTER on the cluster is needed"),
    31: ("failed", "no permission: ALTER on the cluster is needed"),
    39: ("refused", "the directory is cordoned"),
    56: ("retry", "a directory of the broker is offline; it refuses moves until the directory returns"),
    57: ("refused", "the broker has no such directory; paths are absolute, as DescribeLogDirs gives them"),
}


class DescribedBroker(NamedTuple):
    """The observation of one broker."""

    id: int
    broker: Broker | None
    """The state of the broker. None if the observation failed."""
    error: str = ""
    """Why the observation failed. Empty if it succeeded."""


class Profile(NamedTuple):
    """Properties of a broker that change only by a restart."""

    order: tuple[str, ...]
    """The paths in log.dirs of the broker, in order. DescribeLogDirs does not preserve this order, on which ties
    depend."""
    cordons: bool


class ReplicaLocation(NamedTuple):
    """A replica and its desired directory."""

    broker: int
    topic: str
    partition: int
    path: str


class MoveOutcome(NamedTuple):
    """The response of the broker to a request to move a replica."""

    place: ReplicaLocation
    result: str
    """One of these words:

    started   the broker moves the replica, or the replica is in the directory already
    recorded  the broker uses the directory when the replica is created
    refused   another decision is needed
    retry     the request may succeed later
    failed    an operator must change something
    unknown   the broker must be observed before a retry
    """
    detail: str = ""


class LogDirsClient(Closing):
    """The log directories of one cluster. Calls block; safe to use from several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._name, self._endpoint = endpoint.name, endpoint
        self._replaced, self._lock = Replaced(endpoint.security), threading.Lock()
        self._connected: CleanClient | None = self._connect()
        self._profiles: dict[int, Profile] = {}

    def _connect(self) -> CleanClient:
        try:
            return CleanClient(**kafka_python(self._endpoint))
        except kafka_errors.KafkaError as error:
            expected = f"brokers of {self._name} that answer at {self._endpoint.address}"
            raise _translated(error, expected) from error

    @property
    def _admin(self) -> CleanClient:
        """The client; another one after a file of its section security was replaced. Raises `Retry`, `Stop`."""
        with self._lock:
            if (renewed := self._replaced.renewed(self._connect)) is not None:
                self._disconnect()
                self._connected = renewed
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        client, self._connected = self._connected, None
        if client is not None:
            client.close()

    def brokers(self) -> dict[int, str]:
        """The rack ("": none) of each registered broker, by id. Raises `Retry` if none responds."""
        try:
            brokers = self._admin.describe_cluster()["brokers"]
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"the brokers of {self._name}") from error
        return {int(b["broker_id"]): b.get("rack") or "" for b in sorted(brokers, key=lambda b: int(b["broker_id"]))}

    def look(self, brokers: Iterable[int] | None = None) -> list[DescribedBroker]:
        """Observe these brokers, or all. The failure of one does not affect the others."""
        ids = list(self.brokers() if brokers is None else brokers)
        with ThreadPoolExecutor(_TOGETHER) as pool:
            return list(pool.map(self._ask, ids))

    def place(self, places: Sequence[ReplicaLocation]) -> list[MoveOutcome]:
        """Move replicas, select directories for future replicas, or (with the current directory) cancel moves."""
        if not places:
            return []
        try:
            results = self._admin.alter_replica_log_dirs({(p.topic, p.partition, p.broker): p.path for p in places})
        except kafka_errors.KafkaError as error:
            detail = f"{type(error).__name__}: {error}"
            return [MoveOutcome(p, "unknown", detail) for p in places]
        codes = {(t.topic, t.partition, t.broker_id): answer.errno for t, answer in results.items()}
        return [_outcome(p, codes.get((p.topic, p.partition, p.broker), -1)) for p in places]

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        """Limit the bytes per second that all moves of a broker write; None removes the limit."""
        self._set(broker, THROTTLE, None if bytes_per_s is None else str(bytes_per_s))

    def throttled(self, brokers: Iterable[int]) -> dict[int, int]:
        """The limits that are set, by broker. Raises `TrueupError`."""
        try:
            limits = self._settings(brokers, THROTTLE)
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"{THROTTLE} of brokers of {self._name}") from error
        return {broker: int(value) for broker, value in limits.items() if value}

    def cordon(self, broker: int, paths: Iterable[str]) -> None:
        """Exclude these directories from new partitions; an empty list opens all.

        Raises `Stop` for brokers before 4.3: they accept the setting, like any unknown setting, without effect.
        """
        cordoned = ",".join(paths)
        try:
            supported = self._profile(broker).cordons
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"the settings of broker {broker}") from error
        if not supported:
            raise Stop(f"broker {broker} to support {CORDON}", "a broker before 4.3", "upgrade it, or use no cordons")
        self._set(broker, CORDON, cordoned or None)

    def cordoned(self, broker: int) -> frozenset[str]:
        """The paths in the setting of cordons, which include those of offline directories. Raises `TrueupError`."""
        try:
            value = (self._settings([broker], CORDON).get(broker) or "").strip()
            paths = self._profile(broker).order if value == _ALL else value.split(",")
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"{CORDON} of broker {broker}") from error
        return frozenset(path.strip() for path in paths if path.strip())

    def create_topic(self, name: str, assignments: Mapping[int, Sequence[int]], configs: Mapping[str, str]) -> None:
        """Create a topic with the given brokers by partition. Raises `Refused` for a name, assignment or setting that
        the brokers do not accept, and other `TrueupError`."""
        topic = {"assignments": {number: list(ids) for number, ids in assignments.items()}, "configs": dict(configs)}
        try:
            (answer,) = self._admin.create_topics({name: topic}, raise_errors=False)["topics"]
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"the creation of topic {name}") from error
        except RuntimeError as error:  # kafka-python's for two responses NOT_CONTROLLER
            raise Retry(f"the creation of topic {name}", str(error), "try again") from error
        if not (code := answer["error_code"]):
            return
        if code in _NOT_CREATED:
            message = answer.get("error_message") or kafka_errors.for_code(code).description
            raise Refused(f"topic {name} to be created", f"{_name(code)}: {message}", "correct the request")
        raise _translated(kafka_errors.for_code(code)(answer.get("error_message")), f"the creation of topic {name}")

    def _ask(self, broker: int) -> DescribedBroker:
        try:
            answer = self._admin._manager.run(self._describe, broker)
            if answer.error_code:
                return DescribedBroker(
                    broker, None, f"DescribeLogDirs: {_name(answer.error_code)}; DESCRIBE on the cluster is required"
                )
            if not answer.results:
                return DescribedBroker(
                    broker, None, "DescribeLogDirs: an empty response; DESCRIBE on the cluster is required"
                )
            return DescribedBroker(broker, _broker(broker, answer.results, self._profile(broker)))
        except kafka_errors.AuthorizationError as error:
            reason = f"DescribeConfigs: {_name(error.errno)}; DESCRIBE_CONFIGS on the cluster is required"
            return DescribedBroker(broker, None, reason)
        except kafka_errors.KafkaError as error:
            self._profiles.pop(broker, None)  # it may return with a newer version
            away = isinstance(error, kafka_errors.UnknownBrokerIdError)
            return DescribedBroker(broker, None, _AWAY if away else f"{type(error).__name__}: {error}")

    async def _describe(self, broker: int) -> Any:
        return await self._admin._manager.send(DescribeLogDirsRequest(topics=None), node_id=broker)

    def _profile(self, broker: int) -> "Profile":
        """Cached until the broker is down. A broker that supports cordons always lists the setting."""
        if broker not in self._profiles:
            every = self._every([ConfigResource(ConfigResourceType.BROKER, str(broker))]).get(broker) or {}
            paths = (every.get("log.dirs") or every.get("log.dir") or {}).get("value") or ""
            self._profiles[broker] = Profile(tuple(path.strip() for path in paths.split(",")), CORDON in every)
        return self._profiles[broker]

    def _settings(self, brokers: Iterable[int], key: str) -> dict[int, str | None]:
        resources = [ConfigResource(ConfigResourceType.BROKER, str(broker), {key: None}) for broker in brokers]
        return {broker: (configs.get(key) or {}).get("value") for broker, configs in self._every(resources).items()}

    def _every(self, resources: Sequence[ConfigResource]) -> dict[int, Any]:
        """All requested descriptions, by broker."""
        results = self._admin.describe_configs(resources, config_filter="all") if resources else {}
        return {int(name): configs for kind in results.values() for name, configs in kind.items()}

    def _set(self, broker: int, key: str, value: str | None) -> None:
        resource = ConfigResource(ConfigResourceType.BROKER, str(broker), {key: value})
        try:
            if value is None:
                self._admin.reset_configs([resource], raise_on_unknown=False)
            else:
                self._admin.alter_configs([resource], raise_on_unknown=False)
        except kafka_errors.KafkaError as error:
            raise _translated(error, f"{key} of broker {broker} set to {value}") from error


def _broker(number: int, results: Sequence[Any], profile: Profile) -> Broker:
    place = {path: at for at, path in enumerate(profile.order)}
    ordered = sorted(results, key=lambda r: place.get(r.log_dir, len(place)))
    dirs = tuple(_dir(r) for r in ordered)
    names = sorted({topic.name for r in ordered for topic in r.topics})
    code = {name: at for at, name in enumerate(names)}
    rows = [
        (code[topic.name], p.partition_index, home, p.partition_size, p.offset_lag, p.is_future_key)
        for home, r in enumerate(ordered)
        for topic in r.topics
        for p in topic.partitions
    ]
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    topic, partition, home = columns[:3].astype(np.int32)
    replicas = Replicas(tuple(names), topic, partition, home, columns[3], columns[4], columns[5].astype(bool))
    return Broker(number, dirs, replicas, profile.cordons)


def _dir(result: Any) -> LogDir:
    sizes = (getattr(result, "total_bytes", -1), getattr(result, "usable_bytes", -1))
    total, usable = (-1 if size is None else int(size) for size in sizes)
    return LogDir(result.log_dir, total, usable, not result.error_code, bool(getattr(result, "is_cordoned", False)))


def _outcome(place: ReplicaLocation, code: int) -> MoveOutcome:
    if code == 0:
        return MoveOutcome(place, "started")
    if code in _RECORDED:
        return MoveOutcome(place, "recorded", f"the broker has no such replica yet ({_name(code)})")
    result, detail = _WHY.get(code, ("unknown", f"the broker responded with {_name(code)}"))
    return MoveOutcome(place, result, detail)


def _name(code: int) -> str:
    return f"{kafka_errors.for_code(code).__name__} ({code})"


def _translated(error: kafka_errors.KafkaError, expected: str) -> TrueupError:
    found = str(error)  # which begins with the name of its class
    if isinstance(error, kafka_errors.RequestTimedOutError):
        return Unknown(expected, found, "observe again before a retry")
    if getattr(error, "retriable", False):
        return Retry(expected, found, "the request is retried")
    return Stop(expected, found, "check the broker's log, permissions and settings")
