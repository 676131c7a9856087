"""Links under faults of workers, brokers, connections and the application, for a chosen time: does every record exist
exactly once?

    python -m tests.replication.soak [--minutes N] [--every-s N] [--per-s N] [--seed N] [--faults RE] [-o table|json]

Two clusters have topics of the same names, which links copy in both directions on all paths. Applications at both read
copies and write new records with all headers of what they read. A third cluster is older: its topics are in message
format v1 in the first half, and in v2 afterwards. `lanes.py` lists the topics. Links connect to the two clusters
through relays. A fault is counted if records arrived on all ways before it and after it. Some faults are those of
operators: a topic is deleted and created again, and the commands that are shown are executed; rights are taken away,
and the link must not be up meanwhile; the application starts again with other copy paths. Workers are killed more
often than brokers are killed or stopped. The application is not killed in the second half, so that its memory can be
compared. Finally, all logs are compared record by record. Writes bench/results/soak.json. The exit code is 1 if a
record is lost, duplicated, reordered or altered, or if no records arrive after a fault.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaException

from bench.common.keeping import keep
from bench.common.measure import Failed, tell
from bench.common.rows import Row, alone
from tests.e2e.trueup import Trueup
from tests.replication.arrivals import Arrivals
from tests.replication.audit import Audit, ends
from tests.replication.faults import Faults
from tests.replication.lanes import BITS, BOTH_WAYS, EAST, OLDER, PATHS, QUIET, SIDES, WEST, Lane, Lanes
from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK, Pair
from tests.replication.purges import Purges
from tests.replication.relayed import Relayed
from tests.replication.rights import AUTHORIZER, take_away
from tests.replication.sizes import Size, size_of
from tests.replication.sizes import rows as memory
from tests.replication.writers import OLD, OTHERS, PASSED, Site
from trueup.connectors.embedded.server import LocalServer

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "soak.json"
APPLICATION, REPATHED = "application", "application; other copy paths"
LOOK_S = 60.0
FREEZE_S, RELAY_S = 12.0, 8.0
BACK_S = 240.0
"""Maximum seconds until links copy again after a fault."""
WEIGHTS = {"worker": 4}
"""Workers as often as both brokers, which are killed and stopped."""
SAID = {PASSED: "  of them passed on by applications", OLD: "  of them in message format v1"}


def main() -> int:
    """Run, print, and write the results."""
    chosen = arguments("tests.replication.soak", "Links under faults, long", 60.0, 15.0, 20.0)
    return keep(lambda root: _soak(chosen, root), RESULTS, chosen.output)


def _soak(chosen: argparse.Namespace, root: Path) -> list[Row]:
    numbers = count()
    with ExitStack() as stack:
        pair = stack.enter_context(RelayedPair(lambda: root / f"server{next(numbers)}"))
        old = stack.enter_context(OldKafka(root / OLDER))
        old.up()
        lanes = Lanes(pair, old, chosen.per_s)
        trueup = stack.enter_context(_linked(pair, old, lanes.links(), root / "trueup"))
        stack.enter_context(lanes.writing())
        arrivals = stack.enter_context(Arrivals(lanes.sites()))
        kinds, done = {**_kinds(pair, old, trueup), **_operators(pair, trueup, lanes)}, Counter[str]()
        kinds = {name: act for name, act in kinds.items() if re.search(chosen.faults, name)}
        works, sizes = partial(arrivals.wait_all, BACK_S), list[Size]()
        for number, spared in enumerate((frozenset(), {APPLICATION, REPATHED})):
            some = {name: act for name, act in kinds.items() if name not in spared}
            with Faults(some, chosen.every_s, chosen.seed + number, WEIGHTS, works) as faults:
                sizes = _watch(trueup, lanes, faults, chosen.minutes * 30)
            done += faults.done
            if number == 0:
                lanes.convert()
        return _rows(lanes, lanes.audits(), done, sizes, chosen.minutes)


class RelayedPair(Pair):
    """Two clusters that the application reaches through relays, and writers directly."""

    def broker(self, root: Path) -> Relayed:
        return Relayed(root, {**QUICK, **AUTHORIZER})


def _kinds(pair: Pair, old: OldKafka, trueup: Trueup) -> dict[str, Callable[[], None]]:
    """The faults of processes and connections by name. Each function returns when its fault is over."""
    kinds: dict[str, Callable[[], None]] = {
        "worker": lambda: kill_worker(trueup),
        APPLICATION: lambda: kill(trueup),
        f"broker {OLDER} stopped for {FREEZE_S:g} s": partial(_freeze, old),
    }
    for side in SIDES:
        broker = getattr(pair, side)
        kinds |= {
            f"broker {side}": broker.restart,
            f"broker {side} stopped for {FREEZE_S:g} s": partial(_freeze, broker),
            f"relay {side}: connections refused": partial(broker.refuse, RELAY_S),
            f"relay {side}: answers lost": partial(broker.lose, RELAY_S),
            f"relay {side}: data delayed": partial(broker.delay, RELAY_S),
        }
    return kinds


def _operators(pair: Pair, trueup: Trueup, lanes: Lanes) -> dict[str, Callable[[], None]]:
    """What operators do, by name. Each function returns when it is undone, or when the copy continues."""
    kinds: dict[str, Callable[[], None]] = {REPATHED: lambda: _change_paths(trueup)}
    brokers = {EAST: pair.east, WEST: pair.west}
    for path in PATHS:
        lane = lanes.all[f"purged-{path}"]
        purges = Purges(trueup, lane.sites, lane.writers, brokers, lanes.per_s * QUIET)
        links = [f"{path}-{side}" for side in SIDES]
        kinds |= {f"purge {path} {side}": partial(purges.purge, links, side) for side in SIDES}
        kinds[f"purge {path} both"] = partial(purges.purge, links, *SIDES)
    for path in BOTH_WAYS:
        topic = lanes.all[path].topic
        for side, broker in brokers.items():
            kinds[f"rights {path} {side}"] = partial(take_away, trueup, broker, f"{path}-{side}", topic)
    return kinds


@contextmanager
def _linked(pair: Pair, old: OldKafka, links: dict[str, dict[str, object]], root: Path) -> Iterator[Trueup]:
    """The application with all links."""
    addresses = {**{side: getattr(pair, side).relayed for side in SIDES}, OLDER: old.bootstrap}
    kafka = {name: {"bootstrap": address, "bit": BITS[name]} for name, address in addresses.items()}
    with Trueup(None, root, kafka=kafka, links=links) as made:
        made.start()
        yield made


def _watch(trueup: Trueup, lanes: Lanes, faults: Faults, for_s: float) -> list[Size]:
    """Print the state every minute. Returns the sizes of the application."""
    sizes: list[Size] = []

    def state() -> str:
        there = "; ".join(f"{name} {_standing(lane.sites)}" for name, lane in lanes.all.items())
        sizes.append(size_of(trueup.processes()))
        return f"{there}; {sizes[-1]}"

    watch(faults, for_s, LOOK_S, state)
    return sizes


def watch(faults: Faults, for_s: float, look_s: float, state: Callable[[], str]) -> None:
    """Print the state at intervals. Ends early if a fault raised an error."""
    until_s = time.monotonic() + for_s
    while (left_s := until_s - time.monotonic()) > 0 and not faults.wait_failed(min(look_s, left_s)):
        tell(f"{state()}; {sum(faults.done.values())} faults")


def _standing(sites: list[Site]) -> str:
    try:
        return " and ".join(f"{sum(ends(site)):,}" for site in sites)
    except KafkaException as error:  # the broker was just killed
        return str(error.args[0])


def kill_worker(trueup: Trueup) -> None:
    """SIGKILL one of the processes that hold leases."""
    random.choice(trueup.workers()).kill()


def kill(trueup: Trueup) -> None:
    """SIGKILL the application, and start it again."""
    trueup.kill()
    trueup.start()


def _change_paths(trueup: Trueup) -> None:
    """SIGKILL the application, and start it again with other copy paths of the links that choose theirs."""
    trueup.kill()
    settings = json.loads(trueup.file.read_text())
    wanted = {f"auto-{side}": random.choice(BOTH_WAYS) for side in SIDES}
    for name, path in wanted.items():
        settings["links"][name]["copy"] = path
    trueup.file.write_text(json.dumps(settings))
    trueup.start()
    tell(f"copy paths: {wanted}")

    def changed() -> bool:
        return all(path in ("auto", trueup.api(f"links/{name}")["path"]) for name, path in wanted.items())

    trueup.until(f"the paths {wanted}", changed)


def _freeze(broker: LocalServer) -> None:
    """SIGSTOP a broker for `FREEZE_S` seconds."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(FREEZE_S)
    os.kill(broker.pid, signal.SIGCONT)


def _rows(lanes: Lanes, audits: dict[str, Audit], done: Counter[str], sizes: list[Size], minutes: float) -> list[Row]:
    wrong = [name for name, found in audits.items() if not found.right]
    if wrong:
        raise Failed(f"records that are not as they should be: {', '.join(wrong)}: {audits}; faults: {dict(done)}")
    rows = [alone("Minutes", "", [minutes])]
    rows.append(alone("Faults; links copied before and after each", "times", [sum(done.values())]))
    rows += [alone(f"  {name}", "times", [times]) for name, times in sorted(done.items())]
    for name, found in audits.items():
        for side, verdict in found.clusters.items():
            rows.append(alone(f"{name}, {side}: records", "", [verdict.records]))
            rows.append(alone("  missing, doubled, out of order, altered, extra, lost", "", [verdict.faults]))
        rows += _parts(lanes.all[name])
    return rows + memory(sizes)


def _parts(lane: Lane) -> list[Row]:
    """The numbers of records of special writers in a topic."""
    counts = {kind: lane.acknowledged(kind) for kind in OTHERS if any(w.kind == kind for w in lane.writers.all)}
    if not all(counts.values()):
        raise Failed(f"no records of a kind in {lane.topic}: {counts}")
    return [alone(f"{SAID[kind]}", "", [number]) for kind, number in counts.items()]


def arguments(module: str, description: str, minutes: float, every_s: float, per_s: float) -> argparse.Namespace:
    """The options of a soak, with these defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument(
        "--minutes", type=float, default=minutes, metavar="N", help=f"how long to write (default {minutes:g})"
    )
    parser.add_argument(
        "--every-s", type=float, default=every_s, metavar="N", help=f"average rest before a fault (default {every_s:g})"
    )
    parser.add_argument(
        "--per-s", type=float, default=per_s, metavar="N", help=f"records of a writer (default {per_s:g})"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults (default 1)")
    parser.add_argument("--faults", default="", metavar="RE", help="only faults whose names it matches")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
