"""The history of a topic's schema, read from BookKeeper."""

from collections.abc import Callable

from trueup.connectors.pulsar.schemas import SchemaPlace, StoredSchema, schema_of
from trueup.state.common.errors import Stop
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.sources import LedgerSource


class SchemaHistory:
    """The versions of one schema. Each is read when it is first used. ``look``: the function that returns the versions
    that exist now."""

    def __init__(self, name: str, look: Callable[[], list[SchemaPlace]], source: LedgerSource) -> None:
        self._name, self._look, self._source = name, look, source
        self._places = {place.version: place for place in look()}
        self._known: dict[int, StoredSchema] = {}

    def latest(self) -> StoredSchema | None:
        """The schema in force; None: the topic has none, or it was deleted. Raises as `version` does."""
        if not self._places:
            return None
        schema = self.version(max(self._places))
        return None if schema.deleted else schema

    def version(self, number: int) -> StoredSchema:
        """One version. Raises `Stop` if there is no such version, `Retry`, `BadBytes`."""
        if number not in self._known:
            if number not in self._places:
                self._places = {place.version: place for place in self._look()}
            self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> StoredSchema:
        place = self._places.get(number)
        if place is None:
            raise Stop(f"version {number} of the schema of {self._name}", "no such version", _TODO)
        for _, payload in self._source.read(LedgerInfo(place.ledger), place.entry, place.entry):
            where = f"version {number} of the schema of {self._name}, ledger {place.ledger}"
            return schema_of(bytes(payload), number, where)
        raise Stop(f"entry {place.entry} of ledger {place.ledger}", "a shorter ledger", _TODO)


_TODO = "read the values as bytes, or register the schema again"
