"""Errors with which a broker refuses a batch permanently."""

from confluent_kafka import KafkaError

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
OF_RECORDS = TOO_LARGE | {KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError.POLICY_VIOLATION}
"""Because of its size or of a record in it."""
MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
OF_TOPIC = MISSING | {
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""Whatever is in it: it says nothing of its records, so that no policy for refused records may handle them."""
