"""Checks references of a configuration to its environment, which `parse` cannot check: files, variables, addresses."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.kafka.client.security import unreadable
from trueup.connectors.zookeeper.security import options_of
from trueup.state.common.errors import BadSettings
from trueup.state.common.options import ADDRESS, shown
from trueup.state.deletion.stores import StoreSettings
from trueup.state.placement.policy.bookie_classes import depth
from trueup.state.settings.kafka import KafkaCluster
from trueup.state.settings.section import Draft
from trueup.state.settings.settings import Settings
from trueup.state.settings.spark import SPARK

WANTED = "host:port[,host:port...]"


def problems(settings: Settings, env: Mapping[str, str]) -> list[str]:
    """One line for each key whose value is not valid on this machine."""
    own = [*_addresses(settings), *_racks(settings), *_files(settings), *_security(settings)]
    draft = Draft({**settings.sections, SPARK: settings.spark})
    return own + [problem for section in draft.sections for problem in section.check_env(draft, env)]


def _addresses(settings: Settings) -> Iterator[str]:
    # A chroot may follow the last of ZooKeeper's servers.
    servers = settings.cluster.zookeeper.partition("/")[0]
    for name, addresses in (("cluster.zookeeper", servers), ("journal.bootstrap", settings.journal.bootstrap)):
        wrong = [address for address in addresses.split(",") if not ADDRESS.fullmatch(address.strip())]
        if addresses and wrong:
            yield f"{name}: expected {WANTED}; found {shown(wrong[0])}"
    for address in settings.cluster.autorecovery:
        if not ADDRESS.fullmatch(address.partition("://")[2].rstrip("/") or address):
            yield f"cluster.autorecovery: expected [http://]host:port; found {shown(address)}"


def _files(settings: Settings) -> Iterator[str]:
    http = settings.http
    files = {f"http.{name}": getattr(http, name) for name in ("tokens_file", "tls_certificate", "tls_key")}
    files |= {f"stores.{name}.ca": store.ca for name, store in settings.table(StoreSettings).items()}
    for name, place in (files | {"journal.key_file": settings.journal.key_file}).items():
        if place and not (Path(place).is_file() and os.access(place, os.R_OK)):
            yield f"{name}: expected a readable file; found {shown(place)}, which is not"


def _security(settings: Settings) -> Iterator[str]:
    cluster = settings.cluster
    for read in (lambda: options_of(cluster.security, cluster.auth), lambda: bookie_tls(cluster.bookies)):
        try:
            read()
        except BadSettings as error:
            yield from error.problems
    yield from unreadable(settings.journal.security, "journal")
    for name, brokers in settings.table(KafkaCluster).items():
        yield from unreadable(brokers.security, f"kafka.{name}")


def _racks(settings: Settings) -> Iterator[str]:
    racks = settings.racks
    if racks.source == "script" and not (Path(racks.script).is_file() and os.access(racks.script, os.X_OK)):
        problem = "a file that is not executable" if Path(racks.script).exists() else "no such file"
        yield f"racks.script: expected an executable script; found {shown(racks.script)}, {problem}"
    if racks.source != "static":
        return
    bad = [(bookie, rack) for bookie, rack in racks.table.items() if depth(rack) < 1]
    if bad:
        yield f"racks.table: expected locations such as /rack1; found {shown(bad[0][1])} for {shown(bad[0][0])}"
    by_depth = {depth(rack): f"{rack} for {bookie}" for bookie, rack in racks.table.items() if depth(rack) > 0}
    if len(by_depth) > 1:
        yield f"racks.table: expected racks of one depth; found {' and '.join(map(shown, by_depth.values()))}"
