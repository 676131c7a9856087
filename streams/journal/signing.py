"""Signatures of the journal's orders and settings: HMAC-SHA256 after the Avro body, 32 bytes, which readers without a
key ignore.

The signature is over topic, key and body, each of the first two with its length before it: a record cannot be moved to
another topic or key. It does not cover its offset: a record that was valid once can be written again. A deletion has no
body and is not signed.
"""

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from trueup.state.common.errors import BadBytes, Stop

SIZE = hashlib.sha256().digest_size
LEAST_KEY, LARGEST_FILE = 32, 1 << 16


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


def signed(keys: Sequence[bytes], topic: str, key: bytes, body: bytes) -> bytes:
    """The body with its signature."""
    return body + _mac(keys[0], topic, key, body)


def verify(keys: Sequence[bytes], topic: str, key: bytes, body: bytes, where: str) -> None:
    """Raises `BadBytes` if the body has no signature of any of these keys."""
    content, found = body[:-SIZE], body[-SIZE:]
    if not any(hmac.compare_digest(_mac(each, topic, key, content), found) for each in keys):
        todo = "set or order it again; if nobody did, check who may write the topic"
        raise BadBytes(where, len(content), "a signature of journal.key_file", "none that is valid", todo)


def _mac(secret: bytes, topic: str, key: bytes, body: bytes) -> bytes:
    name = topic.encode()
    parts = (len(name).to_bytes(4, "big"), name, len(key).to_bytes(4, "big"), key, body)
    return hmac.new(secret, b"".join(parts), "sha256").digest()
