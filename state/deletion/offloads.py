"""Offloaded ledgers in tiered storage: the owner's record, and the keys of the two objects."""

from typing import NamedTuple


class ObjectPair(NamedTuple):
    """Both objects of one offloaded ledger (DataBlockUtils)."""

    uid: str
    """The UUID of the offload attempt, in its text form."""
    ledger: int

    @property
    def data_key(self) -> str:
        """Key of the data object."""
        return f"{self.uid}-ledger-{self.ledger}"

    @property
    def index_key(self) -> str:
        """Key of the index object."""
        return f"{self.data_key}-index"


class OffloadedCopy(NamedTuple):
    """The owner's record of an offloaded ledger (OffloadContext of MLDataFormats.proto)."""

    pair: ObjectPair
    complete: bool
    """Whether reads may use the copy."""
    driver: str = ""
    """The name of the driver of the offloader; empty if it is not recorded."""
    bucket: str = ""
    """The bucket with the objects; empty if it is not recorded."""
    endpoint: str = ""
    """The endpoint of the service with the bucket; empty if it is not recorded."""
