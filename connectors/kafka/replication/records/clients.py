"""Clients of the records path, and their errors in our words.

librdkafka is not fork-safe: everything here is made in the process that uses it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from trueup.connectors.contract import Endpoint, Limits, LogId
from trueup.connectors.kafka.client.cluster import Cluster
from trueup.connectors.kafka.client.options import librdkafka, only_records
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import Retry, Stop, TrueupError

TIMEOUT_S = 6.0
RETRY_MS = 500
"""So long a producer waits before it writes again what a broker refused: the topic may have been made anew, which
`records_identity` learns before."""
BATCH_BYTES = 512 << 10
"""Below the least usual max.message.bytes, so that a batch is refused only for a record in it."""
ErrorSeen = Callable[[KafkaError], None]

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
"""What a target answers about a record that it will never take as things are."""
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
LINK_WIDE = DENIED - {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def consumer(endpoint: Endpoint, limits: Limits, seen: ErrorSeen, **ours: object) -> Consumer:
    """A consumer that is told its partitions and never commits. ``seen`` hears of errors that concern a connection."""
    settings: dict[str, object] = {
        "group_id": "trueup",  # the client wants one; nothing is ever committed under it
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
    return Consumer(librdkafka(endpoint, **{**settings, **ours}, error_cb=seen))


def producer(endpoint: Endpoint, limits: Limits, seen: ErrorSeen, batch_bytes: int, **ours: object) -> Producer:
    """An idempotent producer that never gives up a record by itself.

    Gapless: once a batch is refused nothing behind it is written, so the newest record in a partition tells that all
    before it are there. The client then is of no further use (a fatal error).
    """
    settings: dict[str, object] = {
        "enable_idempotence": True,
        "enable_gapless_guarantee": True,
        "max_in_flight_requests_per_connection": max(1, min(5, limits.in_flight)),
        "message_timeout_ms": 0,
        "message_max_bytes": 1_000_000_000,  # the target decides what is too large
        "topic_metadata_propagation_max_ms": 5_000,
        "batch_size": batch_bytes,
        "queue_buffering_max_messages": 500_000,
        "queue_buffering_max_kbytes": 1 << 20,
    }
    own = librdkafka(endpoint, **{**settings, **ours, "retry_backoff_ms": RETRY_MS}, error_cb=seen)
    return Producer({"log_level": 3, "compression.type": "lz4", "linger.ms": 2, **own})


def served(client: Producer, wait_s: float) -> KafkaError | None:
    """Let a client call back for so long. The error that ended it, if one did.

    It raises that error out of any call, and goes on calling back meanwhile: what is asked in a callback then raises
    SystemError, which takes the place of the first.
    """
    try:
        client.poll(wait_s)
    except KafkaException as error:
        return error.args[0]  # type: ignore[no-any-return]
    except SystemError as error:
        return KafkaError(KafkaError._FATAL, str(error.__cause__ or error))
    return None


def purged(client: Producer | None) -> None:
    """Take back what a client has not sent."""
    if client is not None:
        with suppress(KafkaException, SystemError):  # one that failed for good says so again
            client.purge()


def dropped(client: Producer, wait_s: float = 1.0) -> None:
    """Take back what a client has not sent, and hear what became of the rest."""
    purged(client)
    with suppress(KafkaException, SystemError):
        client.flush(wait_s)


def cluster_of(endpoint: Endpoint) -> Cluster | None:
    """The cluster for questions that librdkafka cannot ask; None where only it understands the options."""
    return None if only_records(endpoint.options) else Cluster(endpoint)


def bounds(endpoint: Endpoint, partitions: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
    """Where each partition starts and ends, or why that is not known. Raises `Retry` and `Stop` for a whole cluster."""
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
            found[name] = Retry(f"the ends of {name} in {endpoint.name}", "no answer", "look at its brokers")
        except KafkaException as error:
            found[name] = translated(error.args[0], f"find the ends of {name} in {endpoint.name}")
    return found


def translated(error: KafkaError, doing: str) -> TrueupError:
    """Our error for one of the client's."""
    code = error.code()
    if code in DENIED:
        return Stop(f"to {doing}", error.str(), "check user, password and rights")
    if code in MISSING:
        return Stop(f"to {doing}", error.str(), "create the topic or its partitions, or leave it out of the link")
    return Retry(f"to {doing}", error.str(), "look at the brokers; it is tried again")
