"""Encoding of the requests that kazoo lacks, byte by byte (zookeeper.jute)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as jutes
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from trueup.connectors.zookeeper import requests
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE

STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
END = b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"


def jute(text: bytes) -> bytes:
    return struct.pack("!i", len(text)) + text


def test_add_watch_asks_for_a_persistent_recursive_one() -> None:
    request = requests.AddWatch("/ledgers")
    assert (request.type, request.serialize()) == (106, jute(b"/ledgers") + b"\x00\x00\x00\x01")


@given(st.lists(st.binary(min_size=1, max_size=9).filter(lambda n: b"\0" not in n), max_size=20))
def test_multi_read_is_one_get_data_for_each_name(names: list[bytes]) -> None:
    body = b"".join(b"\x00\x00\x00\x04\x00\xff\xff\xff\xff" + jute(b"/a/" + name) + b"\x00" for name in names)
    assert requests.MultiRead(b"/a", names).serialize() == body + END


def test_set_watches_holds_zxid_and_three_vectors() -> None:
    body = requests.SetWatches(258, [b"/a", b"/bc"], [b"/d"]).serialize()
    data = b"\x00\x00\x00\x02" + jute(b"/a") + jute(b"/bc")
    assert body == struct.pack("!q", 258) + data + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x01" + jute(b"/d")


def test_a_multi_read_response_distinguishes_data_stat_and_errors() -> None:
    found = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + jute(b"xyz") + STAT
    null = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\xff\xff\xff\xff" + STAT
    failed = b"".join(b"\xff\xff\xff\xff\x00" + struct.pack("!ii", code, code) for code in (GONE, FORBIDDEN))
    request = requests.MultiRead(b"/a", [b"1", b"2", b"3", b"4"])
    request.zxid = 77
    rows = request.deserialize(b"head" + found + failed + null + END, 4)
    assert (rows.size.tolist(), rows.data(0), rows.stat(3).mzxid, rows.zxid) == ([3, GONE, FORBIDDEN, 0], b"xyz", 2, 77)


@given(st.text("abc/é", min_size=1, max_size=9), st.binary(max_size=9), st.integers(-1, 2**31 - 1))
def test_transactions_are_those_of_kazoo(path: str, data: bytes, version: int) -> None:
    acl = [*OPEN_ACL_UNSAFE, make_digest_acl("u", "p", read=True)]
    ours = [
        requests.creation(path, data, requests.access(tuple(acl))),
        requests.check(path, version),
        requests.deletion(path, version),
        requests.writing(path, data, version),
    ]
    theirs = [
        jutes.Create(path, data, acl, 0),
        jutes.CheckVersion(path, version),
        jutes.Delete(path, version),
        jutes.SetData(path, data, version),
    ]
    assert requests.Multi(ours).serialize() == bytes(jutes.Transaction(theirs).serialize())


def test_the_answer_to_a_transaction_has_a_code_for_each_operation() -> None:
    heads = [struct.pack("!iBi", kind, 0, 0) for kind in (1, 13, 5, 2)]
    done = heads[0] + jute(b"/a/b") + heads[1] + heads[2] + STAT + heads[3]
    undone = b"".join(struct.pack("!iBii", -1, 0, code, code) for code in (0, -103, -2))
    request = requests.Multi([])
    assert (request.deserialize(b"xx" + done + END, 2), request.deserialize(undone + END, 0)) == (
        [None] * 4,
        [0, -103, -2],
    )


@pytest.mark.parametrize("names", [[], [b"L0001", b"L0002"], [b"a", b"bcd", b"ef"], [b"abc", b"d", b"efghi"]])
def test_vectors_of_names_are_read_whatever_their_lengths(names: list[bytes]) -> None:
    body = struct.pack("!i", len(names)) + b"".join(map(jute, names))
    assert requests.names_at(b"xx" + body + b"\x00" * 40, 2) == names


@given(st.lists(st.binary(min_size=1, max_size=6).filter(lambda n: b"\0" not in n), max_size=30), st.binary(max_size=9))
def test_vectors_of_names_come_back(names: list[bytes], rest: bytes) -> None:
    body = struct.pack("!i", len(names)) + b"".join(map(jute, names))
    assert requests.names_at(body + rest, 0) == names


def test_answers_do_not_show_data_in_logs() -> None:
    request = requests.MultiRead(b"/a", [b"1"])
    found = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + jute(b"password") + STAT
    assert "password" not in repr(request.deserialize(found + END, 0))
