"""The protobuf messages of BookKeeper, built at run time without generated code.

The messages of znodes (DataFormats.proto) and of the read requests of bookies (BookkeeperProtocol.proto). Strings are
declared as bytes, which has the same wire format, because text can be invalid UTF-8.
Response codes are declared as int32, which has the same wire format, so that unknown codes are kept.
"""

from trueup.connectors.protobuf import built

_FORMAT = "LedgerMetadataFormat"
_MESSAGES: dict[str, list[str]] = {
    _FORMAT: [
        "1 required int32 quorumSize",
        "2 required int32 ensembleSize",
        "3 required int64 length",
        "4 optional int64 lastEntryId",
        f"5 required enum state .{_FORMAT}.State",
        f"6 repeated message segment .{_FORMAT}.Segment",
        f"7 optional enum digestType .{_FORMAT}.DigestType",
        "8 optional bytes password",
        "9 optional int32 ackQuorumSize",
        "10 optional int64 ctime",
        f"11 repeated message customMetadata .{_FORMAT}.cMetadataMapEntry",
        "12 optional int64 cToken",
    ],
    f"{_FORMAT}.Segment": ["1 repeated bytes ensembleMember", "2 required int64 firstEntryId"],
    f"{_FORMAT}.cMetadataMapEntry": ["1 optional bytes key", "2 optional bytes value"],
    "UnderreplicatedLedgerFormat": ["1 repeated bytes replica", "2 optional int64 ctime"],
    "AuditorVoteFormat": ["1 optional bytes bookieId"],
    "BookieServiceInfoFormat": ["6 repeated message endpoints .BookieServiceInfoFormat.Endpoint"],
    "BookieServiceInfoFormat.Endpoint": [
        "1 required bytes id",
        "2 required int32 port",
        "3 required bytes host",
        "4 required bytes protocol",
    ],
    "Header": ["1 required int32 version", "2 required int32 operation", "3 required int64 txnId"],
    "EntryRequest": ["1 required int64 ledgerId", "2 required int64 entryId"],
    "EntryResponse": [
        "1 required int32 status",
        "2 required int64 ledgerId",
        "3 required int64 entryId",
        "4 optional bytes body",
    ],
    "LedgerRequest": ["1 required int64 ledgerId"],
    "LacResponse": ["1 required int32 status", "3 optional bytes lacBody", "4 optional bytes lastEntryBody"],
    "InfoRequest": ["1 optional int64 requested"],
    "InfoResponse": ["1 required int32 status", "2 optional int64 totalDiskCapacity", "3 optional int64 freeDiskSpace"],
    "StartTls": [],
    "Request": [
        "1 required message header .Header",
        "100 optional message read .EntryRequest",
        "104 optional message lac .LedgerRequest",
        "105 optional message info .InfoRequest",
        "106 optional message tls .StartTls",
    ],
    "Response": [
        "1 required message header .Header",
        "2 required int32 status",
        "100 optional message read .EntryResponse",
        "104 optional message lac .LacResponse",
        "105 optional message info .InfoResponse",
    ],
}
_ENUMS = {
    f"{_FORMAT}.State": ("OPEN", "IN_RECOVERY", "CLOSED"),
    f"{_FORMAT}.DigestType": ("CRC32", "HMAC", "CRC32C", "DUMMY"),
}
_message = built("bookkeeper.proto", _MESSAGES, _ENUMS)

LedgerMetadata = _message(_FORMAT)
Mark = _message("UnderreplicatedLedgerFormat")
Vote = _message("AuditorVoteFormat")
ServiceInfo = _message("BookieServiceInfoFormat")
Request = _message("Request")
Response = _message("Response")
