"""The protobuf messages of entries (PulsarApi.proto), as of 4.2: the fields that Trueup reads.

Text is declared as bytes, enums and unsigned numbers as signed numbers, which have the same wire formats: text can be
invalid UTF-8, enums can be of a newer version, and Pulsar's Java code reads unsigned numbers as signed ones.
"""

from trueup.connectors.protobuf import built

_message = built(
    "pulsar_entries.proto",
    {
        "KeyValue": ["1 required bytes key", "2 required bytes value"],
        "BrokerEntryMetadata": ["1 optional int64 broker_timestamp", "2 optional int64 index"],
        "MessageMetadata": [
            "1 required bytes producer_name",
            "2 required int64 sequence_id",
            "3 required int64 publish_time",
            "4 repeated message properties .KeyValue",
            "5 optional bytes replicated_from",
            "6 optional bytes partition_key",
            "8 optional int32 compression",
            "9 optional int32 uncompressed_size",
            "11 optional int32 num_messages_in_batch",
            "12 optional int64 event_time",
            "13 repeated bytes encryption_keys",
            "16 optional bytes schema_version",
            "17 optional bool partition_key_b64_encoded",
            "18 optional bytes ordering_key",
            "19 optional int64 deliver_at_time",
            "20 optional int32 marker_type",
            "22 optional int64 txnid_least_bits",
            "23 optional int64 txnid_most_bits",
            "25 optional bool null_value",
            "26 optional bytes uuid",
            "27 optional int32 num_chunks_from_msg",
            "28 optional int32 total_chunk_msg_size",
            "29 optional int32 chunk_id",
            "30 optional bool null_partition_key",
        ],
        "SingleMessageMetadata": [
            "1 repeated message properties .KeyValue",
            "2 optional bytes partition_key",
            "3 required int32 payload_size",
            "4 optional bool compacted_out",
            "5 optional int64 event_time",
            "6 optional bool partition_key_b64_encoded",
            "7 optional bytes ordering_key",
            "8 optional int64 sequence_id",
            "9 optional bool null_value",
            "10 optional bool null_partition_key",
        ],
    },
)
BrokerEntryMetadata = _message("BrokerEntryMetadata")
MessageMetadata = _message("MessageMetadata")
SingleMessageMetadata = _message("SingleMessageMetadata")
