"""The protobuf messages of Pulsar's znodes and indexes (MLDataFormats.proto, SchemaStorageFormat.proto), as of 4.2.

Strings are declared as bytes, which has the same wire format, because text can be invalid UTF-8.
"""

from trueup.connectors.protobuf import built

_message = built(
    "pulsar.proto",
    {
        "Wrapper": ["1 required int32 compressionType", "2 required int32 uncompressedSize"],
        "Position": ["1 required int64 ledgerId", "2 required int64 entryId"],
        "KeyValue": ["1 required bytes key", "2 required bytes value"],
        "StringProperty": ["1 required bytes name", "2 required bytes value"],
        "LongProperty": ["1 required bytes name", "2 required int64 value"],
        "OffloadDriver": ["1 optional bytes name", "2 repeated message properties .KeyValue"],
        "OffloadContext": [
            "1 optional int64 uidMsb",
            "2 optional int64 uidLsb",
            "3 optional bool complete",
            "4 optional bool bookkeeperDeleted",
            "5 optional int64 timestamp",
            "6 optional message driverMetadata .OffloadDriver",
        ],
        "LedgerInfo": [
            "1 required int64 ledgerId",
            "2 optional int64 entries",
            "3 optional int64 size",
            "4 optional int64 timestamp",
            "5 optional message offloadContext .OffloadContext",
            "6 repeated message properties .KeyValue",
        ],
        "ManagedLedgerInfo": [
            "1 repeated message ledgerInfo .LedgerInfo",
            "2 optional message terminatedPosition .Position",
            "3 repeated message properties .KeyValue",
        ],
        "MessageRange": ["1 required message lowerEndpoint .Position", "2 required message upperEndpoint .Position"],
        "BatchIndexes": ["1 required message position .Position", "2 repeated int64 deleteSet"],
        "ManagedCursorInfo": [
            "1 required int64 cursorsLedgerId",
            "2 optional int64 markDeleteLedgerId",
            "3 optional int64 markDeleteEntryId",
            "4 repeated message individualDeletedMessages .MessageRange",
            "5 repeated message properties .LongProperty",
            "6 optional int64 lastActive",
            "7 repeated message batchedEntryDeletionIndexInfo .BatchIndexes",
            "8 repeated message cursorProperties .StringProperty",
        ],
        "IndexEntry": ["1 required int64 version", "2 required message position .Position", "3 required bytes hash"],
        "SchemaLocator": ["1 required message info .IndexEntry", "2 repeated message index .IndexEntry"],
        "LedgerMetadataFormat": [
            "3 optional int64 length",
            "4 optional int64 lastEntryId",
            "5 optional int32 state",
            "11 repeated message customMetadata .KeyValue",
        ],
    },
)
Wrapper = _message("Wrapper")
ManagedLedger = _message("ManagedLedgerInfo")
Cursor = _message("ManagedCursorInfo")
Schema = _message("SchemaLocator")
LedgerMetadata = _message("LedgerMetadataFormat")
"""The used fields of BookKeeper's metadata (DataFormats.proto), as the index of an offloaded ledger contains them."""
