"""Signatures of the journal's orders and settings: after the Avro body, which readers without a key ignore; of a
deletion, which has no body, in a header of the record.

A signature is a number (8 bytes, big-endian) and an HMAC-SHA256 (32 bytes) over journal.prefix, cluster.name, topic,
key, number, and the body if there is one. Each name has its length before it: a record cannot be moved to another
journal, topic or key. The number increases with each record: an older record that is written again is refused while the
newer one of its key is in the topic.
"""

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trueup.state.common.errors import BadBytes, Stop

MAC = hashlib.sha256().digest_size
NUMBER = 8
SIZE = NUMBER + MAC
HEADER = "trueup-signature"
LEAST_KEY, LARGEST_FILE = 32, 1 << 16


class Place(NamedTuple):
    """What a signature is for. ``prefix`` and ``cluster`` name the journal."""

    prefix: str
    cluster: str
    topic: str
    key: bytes


def keys_of(file: str) -> Sequence[bytes]:
    """The keys of a file, one per line: the first signs, and all verify. None without a file. Raises `Stop`."""
    if not file:
        return ()
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(LARGEST_FILE)
    except OSError as error:
        raise Stop(f"journal.key_file {file} to be readable", str(error.strerror), "correct it") from error
    keys = [line.strip() for line in content.splitlines() if line.strip()]
    if not keys or min(map(len, keys)) < LEAST_KEY:
        raise Stop(
            f"keys of at least {LEAST_KEY} characters in journal.key_file {file}", "none, or a shorter one",
            "create one with `(umask 077; openssl rand -hex 32 > FILE)`",
        )  # fmt: skip
    return keys


def signature(key: bytes, place: Place, number: int, body: bytes | None) -> bytes:
    """The signature of a body, or of a deletion (None)."""
    counted = number.to_bytes(NUMBER, "big")
    return counted + _mac(key, place, counted, body)


def verify(keys: Sequence[bytes], place: Place, body: bytes | None, header: bytes, where: str) -> int:
    """The number of a signed record. ``body``: with its signature; of a deletion None, with the signature in
    ``header``. Raises `BadBytes` if it has no signature of any of these keys."""
    content, found = (None, header) if body is None else (body[:-SIZE], body[-SIZE:])
    counted, mac = found[:NUMBER], found[NUMBER:]
    if not any(hmac.compare_digest(_mac(each, place, counted, content), mac) for each in keys):
        what = "deletion" if body is None else "record"
        todo = "it is skipped; set or order it again; if nobody did, check who may write the topic"
        expected = f"a signature of journal.key_file for this journal and {what}"
        raise BadBytes(where, len(content or b""), expected, "none that is valid", todo)
    return int.from_bytes(counted, "big")


def _mac(secret: bytes, place: Place, number: bytes, body: bytes | None) -> bytes:
    names = (place.prefix.encode(), place.cluster.encode(), place.topic.encode(), place.key)
    parts = [part for name in names for part in (len(name).to_bytes(4, "big"), name)]
    kind = b"\0" if body is None else b"\1"
    return hmac.new(secret, b"".join([*parts, number, kind, body or b""]), "sha256").digest()
