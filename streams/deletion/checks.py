"""Checks of `trueup doctor` on tiered storage: each store can be listed with its credentials."""

from collections.abc import Iterator

from trueup.connectors.pulsar.offload_index import pair_of
from trueup.connectors.s3.store import store_of
from trueup.state.common.counts import many
from trueup.state.deletion.stores import StoreSettings
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.checks import Check, ok, tried, warn


def all_of(settings: Settings) -> Iterator[Check]:
    """One check per store."""
    for name, declared in settings.table(StoreSettings).items():
        yield from tried(f"stores.{name}", lambda n=name, d=declared: _check(f"stores.{n}", d))  # type: ignore[misc]


def _check(name: str, declared: StoreSettings) -> Check:
    store = store_of(declared)
    objects, uploads = next(store.objects(), []), next(store.uploads(), [])
    pairs = sum(pair_of(stored.key) is not None for stored in objects)
    summary = f"{store.place}: of the first {many(len(objects), 'object')} {pairs} are of ledgers"
    summary += f"; {many(len(uploads), 'upload')} not completed" if uploads else ""
    if not declared.cluster:
        todo = f"set {name}.cluster to the clusterName of the only Pulsar cluster that offloads to this store"
        return warn(name, f"{summary}; unreferenced objects are only reported", todo)
    return ok(name, summary)
