"""librdkafka clients of the records path, and the translation of their errors.

librdkafka is not fork-safe: all clients are created in the process that uses them.
"""

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from trueup.connectors.contract import Endpoint, Limits, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.options import librdkafka, only_records
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import Retry, Stop, TrueupError

TIMEOUT_S = 6.0
RETRY_MS = 2_000
"""Delay of a producer before it repeats a refused write: the topic may have been recreated, which
`topic_identity` detects before. Long, since a process without CPU time verifies nothing meanwhile."""
BATCH_BYTES = 512 << 10
"""Below the lowest common max.message.bytes, so that a batch is refused only because of a record in it."""
PURGE_S = 1.0

DENIED = frozenset({
    KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
})  # fmt: skip
MISSING = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
})  # fmt: skip
REFUSED = DENIED | MISSING | frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP, KafkaError.POLICY_VIOLATION, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
})  # fmt: skip
"""Errors for a record that the target refuses permanently."""


def consumer(endpoint: Endpoint, limits: Limits, **ours: object) -> Consumer:
    """A consumer with assigned partitions that never commits."""
    settings: dict[str, object] = {
        "group_id": "trueup",  # required by the client; nothing is ever committed
        "enable_auto_commit": False,
        "enable_auto_offset_store": False,
        "enable_partition_eof": True,
        "auto_offset_reset": "error",
        "isolation_level": "read_committed",
        "fetch_min_bytes": 1,
        "fetch_wait_max_ms": 100,
        "fetch_message_max_bytes": limits.fetch_bytes,
        "fetch_queue_backoff_ms": 5,
        "queued_min_messages": 20_000,
        "queued_max_messages_kbytes": 32 << 10,
    }
    return Consumer(librdkafka(endpoint, **{**settings, **ours}, error_cb=_ignored))


def producer(endpoint: Endpoint, limits: Limits) -> Producer:
    """An idempotent producer that never gives up a record by itself.

    Gapless: after a refused batch nothing is written, so the newest record in a partition shows that all
    records before it are there. The client is unusable then (a fatal error).
    """
    settings: dict[str, object] = {
        "enable_idempotence": True,
        "enable_gapless_guarantee": True,
        "max_in_flight_requests_per_connection": max(1, min(5, limits.in_flight)),
        "message_timeout_ms": 0,
        "message_max_bytes": 1_000_000_000,  # the target limits the size
        "topic_metadata_propagation_max_ms": 5_000,
        "batch_size": BATCH_BYTES,
        "linger_ms": 0,
        "queue_buffering_max_messages": 500_000,
        "queue_buffering_max_kbytes": 1 << 20,
        "retry_backoff_ms": RETRY_MS,
        "retry_backoff_max_ms": RETRY_MS,
    }
    return Producer({"log_level": 3, "compression.type": "lz4", **librdkafka(endpoint, **settings, error_cb=_ignored)})


def _ignored(_error: KafkaError) -> None:
    """An unreachable broker shows as a missing response."""


def served(client: Producer, wait_s: float) -> KafkaError | None:
    """Serve a client's callbacks for this time. Returns the fatal error if there is one.

    The client raises that error from any call, and continues its callbacks meanwhile: a call within a callback then
    raises SystemError, which hides the first error.
    """
    try:
        client.poll(wait_s)
    except KafkaException as error:
        return error.args[0]  # type: ignore[no-any-return]
    except SystemError as error:
        return KafkaError(KafkaError._FATAL, str(error.__cause__ or error))
    return None


def dropped(client: Producer) -> None:
    """Drop unsent records of a client, and receive the results of the others."""
    with suppress(KafkaException, SystemError):  # a client with a fatal error raises it again
        client.purge()
    with suppress(KafkaException, SystemError):
        client.flush(PURGE_S)


def cluster_of(endpoint: Endpoint) -> KafkaClient | None:
    """The cluster for requests that librdkafka lacks; None if only librdkafka supports the options."""
    return None if only_records(endpoint.options) else KafkaClient(endpoint)


def bounds(endpoint: Endpoint, partitions: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
    """Start and end of each partition, or the error. Raises `Retry` and `Stop` for a whole cluster."""
    places = [TopicPartition(p.topic, p.number) for p in sorted(set(partitions))]
    admin = AdminClient(librdkafka(endpoint, log_level=3))
    asked = [
        admin.list_offsets(dict.fromkeys(places, spec), request_timeout=TIMEOUT_S)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    ]
    found: dict[LogId, Bounds | TrueupError] = {}
    for place in places:
        name = LogId(place.topic, place.partition)
        try:
            found[name] = Bounds(*(answer[place].result(TIMEOUT_S + 1).offset for answer in asked))
        except TimeoutError:
            found[name] = Retry(f"the ends of {name} in {endpoint.name}", "no response", "check its brokers")
        except KafkaException as error:
            found[name] = translated(error.args[0], f"find the ends of {name} in {endpoint.name}")
    return found


def translated(error: KafkaError, doing: str) -> TrueupError:
    """Trueup's error for one of the client's."""
    code = error.code()
    if code in DENIED:
        return Stop(f"to {doing}", error.str(), "check user, password and permissions")
    if code in MISSING:
        return Stop(f"to {doing}", error.str(), "create the topic or its partitions, or exclude it from the link")
    return Retry(f"to {doing}", error.str(), "check the brokers; retrying")
