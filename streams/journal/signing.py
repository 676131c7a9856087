"""Signatures of the journal's records. A signature is after the Avro body, where readers without a key ignore it; a
deletion, which has no body, has its signature in a header of the record.

A signature is a number (8 bytes, big-endian) and an HMAC-SHA256 (32 bytes) over journal.prefix, cluster.name, topic,
key, number, and the body if there is one. Each name has its length before it: a record cannot be moved to another
journal, topic or key. The number increases with each record: an older record that is written again is refused while the
newer one of its key is in the topic.

Each topic has its own key, derived from that of the file: a worker that writes or reads one topic can sign no other.
"""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from trueup.state.common.errors import BadBytes, Stop

MAC = hashlib.sha256().digest_size
NUMBER = 8
SIZE = NUMBER + MAC
HEADER = "trueup-signature"
LEAST_KEY, LARGEST_FILE = 32, 1 << 16


class SignatureScope(NamedTuple):
    """What a signature is for."""

    prefix: str
    """The setting journal.prefix of the journal."""
    cluster: str
    """The setting cluster.name of the journal."""
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
            f"keys of at least {LEAST_KEY} characters in journal.key_file {file}",
            "none, or a shorter one",
            "create one with `(umask 077; openssl rand -hex 32 > FILE)`",
        )
    return keys


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and verifies the records of one topic; `signer_of` makes it. Workers get it with their tasks."""

    keys: tuple[bytes, ...] = field(repr=False)
    """The topic's keys: the first signs, and all verify."""
    place: SignatureScope
    """The topic, without a key."""

    def signature(self, key: bytes, number: int, body: bytes | None) -> bytes:
        """The signature of the record with this key."""
        return signature(self.keys[0], self.place._replace(key=key), number, body)

    def verify(self, key: bytes, body: bytes | None, header: bytes, where: str) -> int:
        """The number of the record with this key. Raises `BadBytes`; see `verify`."""
        return verify(self.keys, self.place._replace(key=key), body, header, where)


def signer_of(secrets: Sequence[bytes], prefix: str, cluster: str, topic: str) -> Signer:
    """The signer of one topic. ``secrets``: the keys of the file."""
    label = b"trueup journal topic " + topic.encode()
    keys = tuple(hmac.digest(secret, label, "sha256") for secret in secrets)
    return Signer(keys, SignatureScope(prefix, cluster, topic, b""))


def number_now() -> int:
    """A number by the clock, so that it exceeds those of earlier runs."""
    return time.time_ns() // 1_000


def signature(key: bytes, place: SignatureScope, number: int, body: bytes | None) -> bytes:
    """The signature of a body, or of a deletion (None)."""
    counted = number.to_bytes(NUMBER, "big")
    return counted + _mac(key, place, counted, body)


def verify(keys: Sequence[bytes], place: SignatureScope, body: bytes | None, header: bytes, where: str) -> int:
    """The number of a signed record. ``body``: the body with its signature; None: the record is a deletion, and its
    signature is in ``header``. Raises `BadBytes` if it has no signature of any of these keys."""
    content, seal = (None, header) if body is None else (body[:-SIZE], body[-SIZE:])
    counted, mac = seal[:NUMBER], seal[NUMBER:]
    if not any(hmac.compare_digest(_mac(key, place, counted, content), mac) for key in keys):
        what = "deletion" if body is None else "record"
        todo = "it is skipped; set or order it again; if nobody did, check who may write the topic"
        expected = f"a signature of journal.key_file for this journal and {what}"
        raise BadBytes(where, len(content or b""), expected, "none that is valid", todo)
    return int.from_bytes(counted, "big")


def _mac(secret: bytes, place: SignatureScope, number: bytes, body: bytes | None) -> bytes:
    kind = b"\0" if body is None else b"\1"
    content = (_journal(*place[:3]), _named(place.key), number, kind, body or b"")
    return hmac.digest(secret, b"".join(content), "sha256")


@lru_cache(64)
def _journal(*names: str) -> bytes:
    return b"".join(_named(name.encode()) for name in names)


def _named(name: bytes) -> bytes:
    return len(name).to_bytes(4, "big") + name
