"""The procedures "Fail over" and "Fail back" of docs/rocketmq.md, carried out word by word.

The links are those of the page, its commands are read out of the steps, and every step is quoted here: a step that is
added, removed or reworded has no action, and fails. Two clusters of RocketMQ and a broker of Kafka are real, and so is
the push consumer of the group (Java). The broker is killed while orders are written.
"""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.procedures import section, steps
from tests.e2e.trueup import Trueup
from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.demo.move import duplicates
from trueup.sandbox.demo.rocketmq_shop import JavaBilling, LakeSite, RocketMqOrders, RocketMqSite
from trueup.sandbox.demo.shop import GROUP, PARTITIONS, disorder, keys, skipped
from trueup.sandbox.servers.rocketmq import RocketMq

pytestmark = [pytest.mark.servers, pytest.mark.release]
PAGE = "rocketmq.md"
OLD, NEW, LAKE = "hangzhou", "shanghai", "lake"
LEASE_S, BURST, SOME, CLOSE = 2.0, 4_000, 300, 1_000
"""``SOME``: orders that are written before the next step. ``CLOSE``: a lag of messages that is close to 0 while orders
are written."""


class Procedure:
    """A shop at the old cluster, and the actions of an operator. ``missed``: orders that the group skipped when it
    moved, by cluster; ``shown``: the output of each command."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        begun_ms = time.time_ns() // 1_000_000
        clusters = [stack.enter_context(RocketMq(root, name)) for name in (OLD, NEW)]
        lake = stack.enter_context(Kafka(root / LAKE, "256m"))
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda server: server.up(), (*clusters, lake)))
        self.old, self.new = (RocketMqSite(cluster, begun_ms) for cluster in clusters)
        stack.callback(self.old.close)
        stack.callback(self.new.close)
        self.old.create()
        self.sites = (self.old, self.new, LakeSite(LAKE, lake, begun_ms))
        self.trueup = stack.enter_context(Trueup(None, root / "trueup", **self.settings(lake.bootstrap)))
        self.trueup.start()
        self.orders, self.billing = RocketMqOrders(begun_ms), JavaBilling(root / GROUP)
        stack.callback(self.billing.close)
        stack.callback(self.billing.end)
        stack.callback(self.orders.end)
        self.missed, self.shown = dict[str, int](), dict[str, str]()

    def settings(self, lake: str) -> dict[str, dict[str, Any]]:
        """The configuration of the page with these clusters, and links that copy and have short leases."""
        found: dict[str, dict[str, Any]] = yaml.safe_load(section(PAGE, "Set up").split("```yaml\n")[1].split("```")[0])
        for site in (self.old, self.new):
            found["rocketmq"][site.name] = {"namesrv": site.address, "bit": found["rocketmq"][site.name]["bit"]}
        found["kafka"][LAKE]["bootstrap"] = lake
        for link in found["links"].values():
            link |= {"mode": "enforce", "lease_s": LEASE_S, "heartbeat_s": 1.0}
        return {**found, "journal": {"bootstrap": lake}}

    def shop(self) -> None:
        """Orders are written to the old cluster and read there, until the group could move. Then its broker dies."""
        self.orders.begin(self.old.name, self.old.address)
        self.billing.begin(self.old.name, self.old.address, fresh=True)
        self.trueup.until("the group's offsets", lambda: min(self.new.committed()) > 0)
        self.orders.burst(BURST)
        half = self.orders.count + BURST // 2
        self.trueup.until("half of a burst", lambda: self.orders.count >= half)
        self.old.kill()
        self.orders.end()
        self.billing.end()

    def carry_out(self, title: str, actions: dict[str, Callable[["Procedure", str], None]]) -> None:
        """Run the steps of a section in order, each with its words."""
        assert steps(PAGE, title) == list(actions)
        for step, action in actions.items():
            action(self, step)

    def command(self, step: str) -> list[str]:
        """The arguments of the command in a step."""
        found = re.search(r"`trueup ([^`]+)`", step)
        assert found, step
        return found[1].split()

    def states(self, step: str) -> dict[str, dict[str, Any]]:
        """The rows of `trueup get links`, as the step asks for them."""
        return {row["link"]: row for row in self.trueup.json(*self.command(step))}

    def down(self, step: str) -> None:
        """Wait until the command shows that the links are down."""

        def found() -> bool:
            return {row["state"] for row in self.states(step).values()} == {"down"}

        self.trueup.until("the links to be down", found)

    def describe(self, step: str) -> None:
        """Keep what the command shows."""
        self.shown["describe"] = self.trueup.run(*self.command(step)).out

    def consumers_to(self, site: RocketMqSite) -> None:
        """Start the consumer with other name servers. It reads only where it has offsets (`JavaBilling`)."""
        self.billing.first[site.name].clear()
        self.billing.begin(site.name, site.address, fresh=False)

    def producers_to(self, site: RocketMqSite) -> None:
        """Start the producers, and wait until the group reads in every queue."""
        self.orders.begin(site.name, site.address)
        some = self.orders.count + SOME
        self.trueup.until("orders", lambda: self.orders.count >= some)
        self.trueup.until("the group", lambda: len(self.billing.first[site.name]) == PARTITIONS)
        self.missed[site.name] = skipped(site.log(), self.billing.first[site.name], self.billing.at_move)

    def level(self, step: str) -> None:
        """Wait until the command shows links that are up and have little to copy."""

        def found() -> bool:
            rows = self.states(step).values()
            return all(row["state"] == "up" and row["lag_records"] < CLOSE for row in rows)

        self.trueup.until("the links to be up, and their lag close to 0", found)

    def change_over(self, _step: str) -> None:
        """Stop the consumers for one lease, and start them at the old cluster."""
        self.billing.end()
        time.sleep(LEASE_S)
        self.consumers_to(self.old)

    def finish(self) -> None:
        """Stop the producers, and wait until all orders are everywhere and were read."""
        self.orders.end()
        wanted = self.orders.wanted
        self.trueup.until("all orders everywhere", lambda: all(wanted <= keys(site.log()) for site in self.sites))
        self.trueup.until("the group to read all orders", lambda: wanted <= self.billing.read.keys())
        self.billing.end()


FAIL_OVER: dict[str, Callable[[Procedure, str], None]] = {
    "`trueup get links` shows `down` for the links of the failed cluster. They need no action.": Procedure.down,
    "`trueup describe link h-s` shows each group with its translated offset, and the messages that were not copied yet "
    "(LAG).": Procedure.describe,
    "Point the consumers to the name servers of the other cluster, with the same group and topic names. A group of "
    "pull and push consumers continues at the message that it would have read next. It reads again what it read after "
    "its last commit (every 5 s by default) and skips no copied message. So does a FIFO group of POP consumers. "
    "`consumeFromWhere` applies only to queues without a committed offset.": lambda made, _: made.consumers_to(
        made.new
    ),
    "Start the producers there.": lambda made, _: made.producers_to(made.new),
}
FAIL_BACK: dict[str, Callable[[Procedure, str], None]] = {
    "Start the old cluster. Links resume by themselves: its last messages arrive late, and the opposite link brings "
    "what was written at the other cluster meanwhile.": lambda made, _: made.old.up(),
    "Wait until both links are `up` and their LAG is close to 0: `trueup get links`.": Procedure.level,
    "Stop the consumers, wait for one lease (`lease_s`), and start them at the old cluster. The offsets were "
    "translated back while they ran at the other one, because no member of the group was at the old "
    "one.": Procedure.change_over,
    "Move the producers.": lambda made, _: made.producers_to(made.old),
}


@pytest.fixture(scope="module")
def done(new_root: Callable[[], Path]) -> Iterator[Procedure]:
    """Both procedures, after a broker was killed."""
    with ExitStack() as stack:
        made = Procedure(stack, new_root())
        made.shop()
        made.carry_out("Fail over", FAIL_OVER)
        made.carry_out("Fail back", FAIL_BACK)
        made.finish()
        yield made


def test_the_command_shows_the_group_with_its_offset_and_what_is_not_copied(done: Procedure) -> None:
    assert (GROUP in done.shown["describe"], "LAG" in done.shown["describe"]) == (True, True), done.shown


@pytest.mark.parametrize("cluster", [NEW, OLD])
def test_the_group_continues_at_the_message_that_it_would_have_read_next(done: Procedure, cluster: str) -> None:
    assert done.missed[cluster] == 0


def test_every_order_is_read(done: Procedure) -> None:
    assert done.orders.wanted - done.billing.read.keys() == set()


@pytest.mark.parametrize("index", range(3))
def test_every_cluster_has_every_order_in_its_order(done: Procedure, index: int) -> None:
    log, ordered = done.sites[index].log(), done.orders.ordered
    lost = done.orders.wanted - keys(log)
    assert (lost, sum(disorder([*filter(ordered, part)]) for part in log.values())) == (set(), 0)


def test_no_order_is_doubled(done: Procedure) -> None:
    assert duplicates({site.name: site.log() for site in done.sites}, done.orders.ordered)[0] == 0
