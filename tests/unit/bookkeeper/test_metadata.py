"""Ledger metadata: vectors assembled by hand from the format specification, and BookKeeper's validation rules."""

import struct

import numpy as np
import pytest

from tests.fuzz import mutated
from trueup.connectors.bookkeeper.metadata import bulk, metadata
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource, decode
from trueup.connectors.zookeeper.requests import Znodes
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import BadBytes

WHERE = ZnodeSource(59, "/ledgers/00/0000/L0059", 1234, 2, 1_700_000_000_000, 9)
MEMBERS = ["192.0.2.7:3181", "192.0.2.8:3181", "bk-3.example.org:3181"]
HEAD = b"BookieMetadataFormatVersion\t"
V1 = (
    b"2\n3\n4096\n"
    b"0\t192.0.2.7:3181\t192.0.2.8:3181\tbk-3.example.org:3181\n"
    b"40\t192.0.2.7:3181\t192.0.2.9:3181\tbk-3.example.org:3181\n"
    b"99\tCLOSED"
)
V2 = (
    b"quorumSize: 2\nensembleSize: 3\nlength: 4096\nlastEntryId: 99\nstate: CLOSED\n"
    b'segment {\n  ensembleMember: "192.0.2.7:3181"\n  ensembleMember: "192.0.2.8:3181"\n'
    b'  ensembleMember: "bk-3.example.org:3181"\n  firstEntryId: 0\n}\n'
    b'digestType: CRC32\npassword: "s\\000t"\nackQuorumSize: 2\nctime: 1690000000000\n'
)
SEGMENT = b"".join(b"\x0a" + bytes([len(name)]) + name.encode() for name in MEMBERS) + b"\x10\x00"
V3 = (
    b"\x08\x02\x10\x03\x18\x80\x20\x20\x63\x28\x03\x32"
    + bytes([len(SEGMENT)])
    + SEGMENT
    + b"\x38\x01\x42\x03s\x00t\x48\x02\x50\x80\x88\xe6\xde\x97\x31"
    + b"\x5a\x15\x0a\x0bapplication\x12\x06pulsar\x60\x00"
)


def message(body: bytes) -> bytes:
    return (
        HEAD + b"3\n" + bytes([len(body)]) + body
        if len(body) < 128
        else HEAD + b"3\n" + bytes([len(body) & 127 | 128, len(body) >> 7]) + body
    )


def expected(**changes: object) -> LedgerRecord:
    return {
        "ledger": 59,
        "mzxid": 1234,
        "version": 2,
        "ctime_ms": 1_690_000_000_000,
        "seen_ms": 9,
        "state": 3,
        "ensemble": 3,
        "quorum": 2,
        "ack_quorum": 2,
        "last_entry": 99,
        "length": 4096,
        "fragments": [{"first_entry": 0, "bookies": MEMBERS}],
        "custom": {},
        "error": "",
        **changes,
    }  # type: ignore[return-value]


def refused(data: bytes) -> BadBytes:
    with pytest.raises(BadBytes) as caught:
        decode(data, WHERE)
    return caught.value


def test_version_1() -> None:
    second = {"first_entry": 40, "bookies": ["192.0.2.7:3181", "192.0.2.9:3181", "bk-3.example.org:3181"]}
    fragments = [{"first_entry": 0, "bookies": MEMBERS}, second]
    assert decode(HEAD + b"1\n" + V1, WHERE) == expected(fragments=fragments, ctime_ms=-1)


def test_version_1_stops_at_the_closing_line() -> None:
    assert decode(HEAD + b"1\n" + V1 + b"\n100\tnot a bookie!\n", WHERE)["last_entry"] == 99


def test_version_1_in_recovery_has_no_end() -> None:
    record = decode(HEAD + b"1\n" + V1.replace(b"99\tCLOSED", b"-102\tCLOSED"), WHERE)
    assert (record["state"], record["last_entry"], record["length"]) == (LedgerState.IN_RECOVERY, -1, 0)


def test_version_2() -> None:
    assert decode(HEAD + b"2\n" + V2, WHERE) == expected()


def test_version_2_skips_fields_of_a_later_release() -> None:
    assert decode(HEAD + b"2\n" + V2 + b"tomorrow: 3\n", WHERE) == expected()


def test_version_3() -> None:
    assert decode(message(V3), WHERE) == expected(custom={"application": b"pulsar"})


def test_version_3_without_ack_quorum_acknowledges_by_the_write_quorum() -> None:
    assert decode(message(V3.replace(b"\x48\x02", b"")), WHERE)["ack_quorum"] == 2


def test_version_3_without_a_password_is_read() -> None:
    assert decode(message(V3.replace(b"\x42\x03s\x00t", b"")), WHERE)["length"] == 4096


def test_version_3_ignores_what_follows_the_message() -> None:
    assert decode(message(V3) + b"\xff\xff", WHERE)["length"] == 4096


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_an_unclosed_ledger_has_no_end_whatever_is_stored(state: LedgerState) -> None:
    record = decode(message(V3.replace(b"\x28\x03", bytes([0x28, state]))), WHERE)
    assert (record["last_entry"], record["length"]) == (-1, 0)


def test_a_damaged_header_is_named_by_its_byte() -> None:
    error = refused(b"BookieMetadatXFormat")
    assert (error.where, error.at) == ("/ledgers/00/0000/L0059", 13)


@pytest.mark.parametrize("version", [b"4\n", b"0\n", b"x\n", b"3", b"1234567890\n", b""])
def test_an_unknown_version_is_named_by_its_byte(version: bytes) -> None:
    assert refused(HEAD + version + b"\x00").at == len(HEAD)


def test_a_truncated_message_is_named_by_its_length() -> None:
    assert refused(message(V3)[:-1]).at == len(HEAD) + 2


def test_damage_inside_a_segment_is_named_by_its_byte() -> None:
    data = message(V3.replace(b"\x0a\x0e192.0.2.8", b"\x0a\x7e192.0.2.8"))
    assert refused(data).at == data.index(b"\x7e192.0.2.8")


def test_damaged_text_is_named_by_its_byte() -> None:
    data = HEAD + b"2\n" + V2.replace(b"length: 4096", b"length: many")
    assert refused(data).at == data.index(b"many")


@pytest.mark.parametrize(
    "lines",
    [
        V2.replace(b"state: CLOSED", b"state: 3"),  # 4.17.3 reads it, 4.18.0 does not
        V2.replace(b"digestType: CRC32\n", b""),  # the same
        V2 + b"later: 5\n",  # 4.18.0 reads it, 4.17.3 does not
        V2 + b"later { one: 5 }\n# 13: 5\n",
    ],
)
def test_text_that_one_version_reads_as_a_whole_is_read(lines: bytes) -> None:
    assert decode(HEAD + b"2\n" + lines, WHERE)["fragments"] == expected()["fragments"]


@pytest.mark.parametrize(
    "lines",
    [
        V2 + b"13: 5\n",
        V2 + b"12: 5\n",
        V2.replace(b"firstEntryId: 0", b"firstEntryId: 0\n 9: 1"),
        V2.replace(b"digestType", b"digestTyp"),
        V2.replace(b"state: CLOSED", b"state: 3") + b"later: 5\n",
    ],
)
def test_text_that_each_version_refuses_for_another_reason_is_refused(lines: bytes) -> None:
    assert refused(HEAD + b"2\n" + lines).wanted == "ledger metadata as text"


def test_an_octal_escape_beyond_a_byte_is_named_by_its_byte() -> None:
    data = HEAD + b"2\n" + V2.replace(b"\\000", b"\\400")
    assert refused(data).at == data.index(b"\\400")


@pytest.mark.parametrize("escape", [b"\\ ", b"\\q", b"\\u00e9"])
def test_an_escape_that_java_does_not_know_is_named_by_its_byte(escape: bytes) -> None:
    data = HEAD + b"2\n" + V2.replace(b"\\000", escape)
    assert refused(data).at == data.index(escape)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"2\n3\n0\n", "at least one fragment"),
        (b"2\n", "write quorum, ensemble and length"),
        (b"2\n3\nx\n", "a number of 64 bits"),
        (b"4\n3\n0\n0\ta:1\tb:1\tc:1\n", "ensemble >= write quorum >= ack quorum"),
        (b"2\n3\n0\n0\ta:1\tb:1\n", "3 bookies in a fragment"),
        (b"1\n1\n0\n5\ta:1\n5\tb:1\n", "a fragment that starts after entry 5"),
        (b"1\n1\n0\n5\ta:1\n4\tb:1\n", "a fragment that starts after entry 5"),
        (b"1\n1\n0\n0\ta/b\n", "a bookie id"),
        (b"1\n1\n0\n0\tReadOnly\n", "a bookie id"),
        (b"1\n1\n0\n7\n", "a fragment"),
        (b"1\n1\n0\n\n", "a number of 64 bits"),
    ],
)
def test_what_bookkeeper_refuses_is_refused(body: bytes, wanted: str) -> None:
    assert refused(HEAD + b"1\n" + body).wanted == wanted


def test_a_name_that_ends_with_a_zero_byte_is_refused_in_bulk_too() -> None:
    data = message(V3.replace(b"\x0a\x0e192.0.2.8:3181", b"\x0a\x0e192.0.2.8:318\x00"))
    stat = struct.pack("!qqqqiiiqiiq", 1, 1234, 5, 5, 2, 0, 0, 0, len(data), 0, 1)
    found = Znodes(data + stat, np.array([0]), np.array([len(data)]), 9)
    (record,) = bulk.decode(np.array([59]), [found], lambda _: WHERE.path, 9).records()
    assert (record["state"], record["error"]) == (LedgerState.UNREADABLE, str(refused(data)))


@pytest.mark.parametrize("name", ["a:1", "b;<=>?@[\\]^_", "Z.-9"])
def test_bookie_ids_take_the_characters_from_colon_to_underscore(name: str) -> None:
    assert metadata.valid_bookie(name)


@pytest.mark.parametrize("name", ["", "a/b", "a%b", "a+b", "a,b", "a b", "readonly", "READonly", "a\n"])
def test_other_bookie_ids_are_refused(name: str) -> None:
    assert not metadata.valid_bookie(name)


@pytest.mark.parametrize(("last", "entries"), [(39, 0), (40, 255), (-1, 0)])
def test_the_last_fragment_of_a_closed_ledger_may_hold_nothing(last: int, entries: int) -> None:
    record = decode(HEAD + b"1\n" + V1.replace(b"99\tC", b"%d\tC" % last), WHERE)
    assert metadata.entries(record) == entries


PASSWORD = b"Planted!"


def test_no_damage_makes_an_error_quote_the_password() -> None:
    """The error contains the password neither as text nor as a Python bytes literal."""
    seeds = [metadata.encode(expected(), version, PASSWORD) for version in (2, 3)]
    seeds += [HEAD + b"1\n" + seed[len(HEAD) + 2 :] for seed in seeds]
    seeds += [PASSWORD + seeds[0], HEAD + PASSWORD, HEAD + b"1\n2\n3\n0\n" + PASSWORD + b"\t" + PASSWORD]
    wrong = 0
    for data in mutated(seeds, 2_000, "password"):
        try:
            result = str(decode(data, WHERE))
        except BadBytes as error:
            result, wrong = f"{error}", wrong + 1
        assert not [at for at in range(5) if PASSWORD[at : at + 4].decode() in result], result
    assert wrong > 500


def test_what_stands_before_metadata_is_not_quoted() -> None:
    assert "Planted" not in str(refused(PASSWORD))
