"""Copies of ledgers in tiered storage: what an owner says of one, and how its two objects are named."""

from typing import NamedTuple


class Pair(NamedTuple):
    """Both objects of one copy of a ledger (DataBlockUtils). ``uid``: of the attempt to offload it, as a UUID is
    written."""

    uid: str
    ledger: int

    @property
    def data_key(self) -> str:
        """Key of the object with the entries."""
        return f"{self.uid}-ledger-{self.ledger}"

    @property
    def index_key(self) -> str:
        """Key of the object that says where they are."""
        return f"{self.data_key}-index"


class Copy(NamedTuple):
    """What an owner says of the copy of a ledger (OffloadContext of MLDataFormats.proto). ``complete``: reading may go
    there. ``driver``: of the offloader; ``bucket`` and ``endpoint``: where it put the copy, empty where that is not
    said."""

    pair: Pair
    complete: bool
    driver: str = ""
    bucket: str = ""
    endpoint: str = ""
