from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource, decode
from trueup.sandbox.forgetting import data_of, empty_ledger, path
from trueup.state.bookkeeper.observations import LedgerState

MEMBERS = ["127.0.0.1:43443", "127.0.0.2:39637"]
CUSTOM = {
    "component": "managed-ledger",
    "pulsar/managed-ledger": "public/default/persistent/t1",
    "application": "pulsar",
}
# Metadata of a ledger that Pulsar 4.2.4 has just opened.
OPENED = (
    b"BookieMetadataFormatVersion\t3\n\xac\x01\x08\x02\x10\x02\x18\x00 \xff\xff\xff\xff\xff\xff\xff\xff\xff\x01(\x01"
    b"2$\n\x0f127.0.0.1:43443\n\x0f127.0.0.2:39637\x10\x008\x03B\x00H\x02Z\x1b\n\tcomponent\x12\x0emanaged-ledger"
    b"Z5\n\x15pulsar/managed-ledger\x12\x1cpublic/default/persistent/t1Z\x15\n\x0bapplication\x12\x06pulsar`\x00"
)


def test_a_planted_ledger_is_one_that_was_closed_as_it_was_opened() -> None:
    assert empty_ledger(MEMBERS, CUSTOM) == OPENED.replace(b"\x01(\x01", b"\x01(\x03")


def test_a_planted_ledger_reads_as_empty_and_closed() -> None:
    record = decode(empty_ledger(MEMBERS, CUSTOM), ZnodeSource(7, path(7), 1, 0, 5, 6))
    assert (record["state"], record["last_entry"], record["fragments"]) == (
        LedgerState.CLOSED,
        -1,
        [{"first_entry": 0, "bookies": MEMBERS}],
    )


def test_a_planted_ledger_names_its_owner() -> None:
    assert data_of("public/default/persistent/t1") == CUSTOM


def test_ledgers_are_looked_for_where_they_are() -> None:
    assert path(1_234_567_890) == BookKeeperPaths("/ledgers").ledger(1_234_567_890)
