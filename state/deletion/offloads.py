"""Offloaded ledgers in tiered storage: the owner's record, and the keys of the two objects."""

from typing import NamedTuple


class Pair(NamedTuple):
    """Both objects of one offloaded ledger (DataBlockUtils). ``uid``: UUID of the offload attempt, in its text form."""

    uid: str
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
    """The owner's record of an offloaded ledger (OffloadContext of MLDataFormats.proto). ``complete``: reads may use
    it. ``driver``: of the offloader; ``bucket`` and ``endpoint``: location of the objects, empty if not recorded."""

    pair: Pair
    complete: bool
    driver: str = ""
    bucket: str = ""
    endpoint: str = ""
