"""The tags of Kafka's batches as the paths of records, and back."""

from trueup.connectors.contract import Lease
from trueup.state.replication.provenance import path_with, tag_of, tokens_bytes, tokens_in, tokens_of


class Paths:
    """The paths of one lease: tokens of clusters, as in the header of a record, and bits, as in the producer id of its
    batch."""

    def __init__(self, lease: Lease) -> None:
        self._bits = lease.bits
        self._texts: dict[int, bytes] = {}
        self._paths: dict[bytes, int] = {}
        self.default = 1 << lease.source.bit

    def text(self, producer_id: int) -> bytes:
        """The path of the records of a batch that a link wrote, in the order of bits; empty: no link wrote it."""
        tag = tag_of(producer_id)
        if tag is None:
            return b""
        if tag.path not in self._texts:
            self._texts[tag.path] = tokens_bytes(tokens_in(tag.path, self._bits))
        return self._texts[tag.path]

    def path(self, text: bytes) -> int:
        """The bitmap for the tokens in a header."""
        if text not in self._paths:
            self._paths[text] = path_with(tokens_of(text))
        return self._paths[text]


def ordered(text: bytes, given: bytes | None) -> bytes:
    """A path in the order of the header that the record has, if that has the same clusters: the first one is where
    the record was produced. ``text``: the path from the tag."""
    if not text or given is None or given == text or b"," not in text:
        return text
    return given if path_with(tokens_of(given)) == path_with(tokens_of(text)) else text
