"""Deletion of ledgers on a real ZooKeeper: only unreferenced ledgers are deleted, despite concurrent changes."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions, make_digest_acl

from tests.integration.deletion.owners import DATA, TOPIC, Owners
from tests.proxy import Proxy
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.guarded_delete import DeleteOrder, DeleteOutcome, Deleter, Verify
from trueup.connectors.pulsar.offload_verify import OffloadFacts
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.requests import Stat
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.owners import SCHEMA, Claim, Component

pytestmark = pytest.mark.servers

CLAIM = Claim(Component.DATA, TOPIC)
LEDGER = 5
ORDER = DeleteOrder(LEDGER, 0, 7, CLAIM)
SECRET = [make_digest_acl("else", "secret", all=True)]


@pytest.fixture
def owners(client: ZooKeeperClient, own_root: str) -> Owners:
    """A closed ledger that its topic no longer lists. The topic lists a later ledger and has a cursor."""
    made = Owners(client, own_root)
    made.ledger(LEDGER)
    made.managed_ledger(8, 9)
    made.cursor("sub", 11)
    return made


def unverified(copy: OffloadedCopy, facts: OffloadFacts) -> None:
    raise Stop("no copy to be asked for", str((copy, facts)), "none of these ledgers has one")


class Late:
    """A client that calls ``last`` directly before it sends transactions."""

    def __init__(self, client: ZooKeeperClient, last: Callable[[], Any]) -> None:
        self._client, self._last = client, last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit(self, operations: Any) -> Any:
        self._last()
        return self._client.commit(operations)


def deleter(
    owners: Owners,
    client: ZooKeeperClient | None = None,
    meanwhile: Callable[[], Any] = lambda: None,
    verify: Verify = unverified,
    last: Callable[[], Any] = lambda: None,
    unread: Callable[[], str] = lambda: "",
) -> Deleter:
    """``meanwhile`` runs between the two looks at the owner and the ledger, ``last`` between the second look and the
    transaction."""

    def decode(ledger: int, data: bytes, stat: Stat) -> LedgerRecord:
        meanwhile()
        return owners.decode(ledger, data, stat)

    late: Any = Late(client or owners.client, last)
    return Deleter(late, owners.paths, owners.ledgers.ledger, decode, lambda: 1, verify, unread)


def delete(owners: Owners, order: DeleteOrder = ORDER, **hooks: Callable[[], Any]) -> DeleteOutcome:
    return deleter(owners, **hooks).delete([order])[0]  # type: ignore[arg-type]


def there(owners: Owners, ledger: int = LEDGER) -> bool:
    return owners.client.look(owners.ledgers.ledger(ledger)) is not None


def test_a_forgotten_ledger_is_deleted_and_nothing_else(owners: Owners) -> None:
    before = owners.all()
    outcome = delete(owners)
    assert (outcome.result, before - owners.all()) == ("deleted", {owners.ledgers.ledger(LEDGER)})


@pytest.mark.parametrize("topic", ["t/ns/persistent/persistent", "t/c/persistent/persistent/a"])
def test_a_ledger_of_a_topic_whose_path_has_two_readings_is_deleted(owners: Owners, topic: str) -> None:
    owners.managed_ledger(8, 9, owner=topic)
    owners.cursor("sub", 11, owner=topic)
    owners.ledger(6, custom={**DATA, "pulsar/managed-ledger": topic.encode()})
    outcome = delete(owners, ORDER._replace(ledger=6, claim=Claim(Component.DATA, topic)))
    assert (outcome.result, there(owners, 6)) == ("deleted", False), outcome


def test_an_ambiguous_cursor_protects_both_possible_owners(owners: Owners) -> None:
    topic = "t/ns/persistent/persistent"
    owners.managed_ledger(8, 9, owner=topic)
    owners.make(f"{owners.paths.node(topic)}/a", b"\xff")
    orders = [ORDER._replace(claim=Claim(Component.DATA, owner)) for owner in (topic, f"{topic}/a")]
    for number, order in enumerate(orders):
        owners.ledger(6 + number, custom={**DATA, "pulsar/managed-ledger": order.claim.owner.encode()})
    reported = deleter(owners).delete([order._replace(ledger=6 + number) for number, order in enumerate(orders)])
    assert [(each.result, "byte 0" in each.detail) for each in reported] == [("refused", True)] * 2, reported


def test_nothing_is_written_on_the_owners_nodes(owners: Owners) -> None:
    before = owners.actual()
    delete(owners)
    assert owners.actual() == before


def test_the_outcome_has_the_zxid_of_the_deletion(owners: Owners) -> None:
    outcome = delete(owners)
    found = owners.client.look(owners.ledgers.ledger(LEDGER).rpartition("/")[0])
    assert found is not None
    assert outcome.zxid == found[1].pzxid


def test_a_ledger_that_is_not_there_is_gone(owners: Owners) -> None:
    assert delete(owners, ORDER._replace(ledger=6)).result == "gone"


def test_an_open_ledger_goes_if_its_writer_went_on(owners: Owners) -> None:
    owners.ledger(6, LedgerState.OPEN)
    assert delete(owners, ORDER._replace(ledger=6, unclosed=True)).result == "deleted"


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_a_ledger_that_must_be_closed_and_is_not_stays(owners: Owners, state: LedgerState) -> None:
    owners.ledger(6, state)
    outcome = delete(owners, ORDER._replace(ledger=6))
    assert (outcome.result, there(owners, 6), state.name in outcome.detail) == ("refused", True, True)


def test_a_ledger_in_recovery_always_stays(owners: Owners) -> None:
    owners.ledger(6, LedgerState.IN_RECOVERY)
    assert delete(owners, ORDER._replace(ledger=6, unclosed=True)).result == "refused"


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda o: o.ledger(LEDGER), "version"),
        (lambda o: o.managed_ledger(LEDGER, 9), "no reference"),
        (lambda o: o.cursor("sub", LEDGER), "no reference"),
        (lambda o: o.cursor("other", -1, LEDGER), "no reference"),
        (lambda o: o.managed_ledger(3, 4), "may be listed soon"),
        (lambda o: o.managed_ledger(), "no data"),
        (lambda o: o.client.delete(o.paths.node(TOPIC), recursive=True), "owner's node"),
        (lambda o: o.make(o.paths.node(TOPIC), b"\x08\x01"), "at byte 0"),
        (lambda o: o.make(f"{o.paths.node(TOPIC)}/odd", b"\x0a"), "at byte"),
        (lambda o: o.make(f"{o.paths.node(TOPIC)}/sub/below", b"x"), "at byte"),
        (lambda o: o.client.set_acls(o.paths.node(TOPIC), SECRET), "permission to read"),
        (lambda o: o.client.set_acls(f"{o.paths.node(TOPIC)}/sub", SECRET), "permission to read"),
        (lambda o: o.client.set_acls(o.ledgers.ledger(LEDGER), SECRET), "permission to read"),
    ],
)
def test_a_ledger_stays_unless_its_owner_is_known_to_need_it_no_more(owners: Owners, act: Any, word: str) -> None:
    act(owners)
    outcome = delete(owners)
    left = [name.decode() for name in owners.client.listing(owners.ledgers.ledger(LEDGER).rpartition("/")[0])[0]]
    assert (outcome.result, left, word in outcome.detail) == ("refused", ["L0005"], True), outcome


@pytest.mark.parametrize(
    ("order", "word"),
    [
        (ORDER._replace(version=3), "version 3"),
        (ORDER._replace(ctime_ms=8), "created at 8"),
        (ORDER._replace(claim=Claim(Component.DATA, "t/ns/persistent/b")), "of t/ns/persistent/b"),
        (ORDER._replace(claim=Claim(Component.CURSOR, TOPIC, "sub")), "CURSOR"),
        (ORDER._replace(claim=Claim(Component.UNKNOWN)), "UNKNOWN"),
        (ORDER._replace(claim=Claim(Component.DATA, f"{SCHEMA}t/ns/a")), "managed ledger"),
        (ORDER._replace(claim=Claim(Component.DATA, "t/ns/persistent/a/sub")), "managed ledger"),
        (ORDER._replace(claim=Claim(Component.DATA, "../a")), "name"),
    ],
)
def test_orders_that_do_not_fit_are_refused(owners: Owners, order: DeleteOrder, word: str) -> None:
    outcome = delete(owners, order)
    assert (outcome.result, there(owners), word in outcome.detail) == ("refused", True, True), outcome


def test_a_ledger_of_another_owner_than_ordered_stays(owners: Owners) -> None:
    owners.ledger(6, custom=DATA | {"pulsar/managed-ledger": b"t/ns/persistent/b"})
    assert delete(owners, ORDER._replace(ledger=6)).result == "refused"


def test_a_ledger_that_cannot_be_read_stays(owners: Owners) -> None:
    owners.make(owners.ledgers.ledger(6), b"BookieMetadataFormatVersion\t3\nx")
    assert delete(owners, ORDER._replace(ledger=6)).result == "refused"


def made_anew(owners: Owners, path: str, data: bytes) -> None:
    """Delete this node and all below, and create it with these data at the same version."""
    found = owners.client.look(path)
    assert found is not None
    owners.client.delete(path, recursive=True)
    owners.make(path)
    for _ in range(found[1].version):
        owners.make(path, data)
    again = owners.client.look(path)
    assert again is not None
    assert (again[0], again[1].version) == (data, found[1].version)


@pytest.mark.parametrize("hook", ["meanwhile", "last"])
@pytest.mark.parametrize(
    "act",
    [
        lambda o: o.managed_ledger(LEDGER, 8, 9),
        lambda o: o.managed_ledger(8, 9),
        lambda o: o.client.delete(o.paths.node(TOPIC), recursive=True),
        lambda o: o.ledger(LEDGER),
    ],
    ids=["listed again", "written", "deleted", "ledger written"],
)
def test_what_happens_between_the_looks_or_before_the_transaction_undoes_it(
    owners: Owners, act: Callable[[Owners], Any], hook: str
) -> None:
    outcome = delete(owners, **{hook: lambda: act(owners)})
    assert (outcome.result, there(owners)) == ("refused", True)


@pytest.mark.parametrize("writes", [1, 4])
def test_a_topic_that_is_made_anew_at_the_same_version_undoes_it(owners: Owners, writes: int) -> None:
    for _ in range(writes):
        owners.managed_ledger(8, 9)
    mine = owners.client.look(owners.paths.node(TOPIC))
    other = owners.client.look(owners.managed_ledger(LEDGER, 8, 9, owner="t/ns/persistent/other"))
    assert mine is not None
    assert other is not None
    outcome = delete(owners, meanwhile=lambda: made_anew(owners, owners.paths.node(TOPIC), other[0]))
    assert (outcome.result, there(owners)) == ("refused", True), outcome


def test_a_ledger_that_is_made_anew_at_the_same_version_stays(owners: Owners) -> None:
    path = owners.ledger(LEDGER)
    found = owners.client.look(path)
    assert found is not None
    outcome = delete(owners, ORDER._replace(version=1), meanwhile=lambda: made_anew(owners, path, found[0]))
    assert (outcome.result, there(owners)) == ("refused", True), outcome


@pytest.mark.parametrize("hook", ["meanwhile", "last"])
def test_a_ledger_deleted_by_another_in_between_is_gone(owners: Owners, hook: str) -> None:
    outcome = delete(owners, **{hook: lambda: owners.client.drop(owners.ledgers.ledger(LEDGER), -1)})
    assert outcome.result == "gone"


@pytest.mark.parametrize("hook", ["meanwhile", "last"])
def test_a_cursor_may_change_in_between(owners: Owners, hook: str) -> None:
    assert delete(owners, **{hook: lambda: owners.cursor("sub", 12)}).result == "deleted"


def test_a_cursor_that_references_the_ledger_at_the_second_look_undoes_it(owners: Owners) -> None:
    outcome = delete(owners, meanwhile=lambda: owners.cursor("sub", LEDGER))
    assert (outcome.result, there(owners)) == ("refused", True)


def test_without_permission_to_delete_it_is_refused(owners: Owners) -> None:
    rights = Permissions.READ | Permissions.WRITE | Permissions.CREATE | Permissions.ADMIN
    parent = owners.ledgers.ledger(LEDGER).rpartition("/")[0]
    owners.client.set_acls(parent, [ACL(rights, ANYONE_ID_UNSAFE)])
    refused = delete(owners)
    owners.client.set_acls(parent, OPEN_ACL_UNSAFE)
    assert (refused.result, "permission to delete" in refused.detail, delete(owners).result) == (
        "refused",
        True,
        "deleted",
    )


@pytest.mark.parametrize("looks", [0, 1])
def test_while_a_node_may_not_be_read_nothing_is_deleted(owners: Owners, looks: int) -> None:
    told = iter([*[""] * looks, "no permission", "no permission"])
    outcome = deleter(owners, unread=lambda: next(told)).delete([ORDER])[0]
    assert (outcome.result, outcome.detail, there(owners)) == ("refused", "no permission", True)


def test_each_of_many_orders_is_answered_by_itself(owners: Owners) -> None:
    topics = [f"t/ns/persistent/topic{n}" for n in range(20)]
    orders, expected = [], []
    for n, topic in enumerate(topics):
        owners.managed_ledger(10 * n + 107, 10 * n + 109, owner=topic)
        for ledger, result in [(101, "deleted"), (102, "gone"), (107, "refused"), (108, "deleted"), (109, "refused")]:
            if result != "gone":
                owners.ledger(10 * n + ledger, custom=DATA | {"pulsar/managed-ledger": topic.encode()})
            orders.append(DeleteOrder(10 * n + ledger, 0, 7, Claim(Component.DATA, topic)))
            expected.append(result)
    reported = deleter(owners).delete(orders)
    assert [(outcome.ledger, outcome.result) for outcome in reported] == [
        (order.ledger, result) for order, result in zip(orders, expected, strict=True)
    ]


def test_without_a_connection_nothing_is_done(zookeeper: ZooKeeper, owners: Owners) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = ZooKeeperClient(proxy.address, timeout=30.0).open()
        proxy.open = False
        proxy.cut()
        wait_until(lambda: not far.connected, 180.0, "the loss to be noticed")
        reported = deleter(owners, far).delete([ORDER, ORDER])
        far.shut()
    assert ([outcome.result for outcome in reported], there(owners)) == (["retry", "retry"], True)


def test_a_connection_lost_inside_the_transaction_leaves_it_unknown(zookeeper: ZooKeeper, owners: Owners) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = ZooKeeperClient(proxy.address, timeout=30.0).open()

        def cut_when_done() -> None:
            wait_until(lambda: not there(owners), 180.0, "the ledger to be deleted")
            proxy.cut()

        cutting = threading.Thread(target=cut_when_done)
        cutting.start()
        (reported,) = deleter(owners, far, last=lambda: setattr(proxy, "deaf", True)).delete([ORDER])
        cutting.join()
        proxy.deaf = False
        far.shut()
    assert reported.result == "unknown"


UID = "01234567-89ab-cdef-0123-456789abcdef"
DROPPED = ORDER._replace(dropped=True)


class Verified:
    """Verifies every copy successfully, or raises ``error``. Records all requests."""

    def __init__(self, error: TrueupError | None = None) -> None:
        self.error, self.asked = error, list[tuple[OffloadedCopy, OffloadFacts]]()

    def __call__(self, copy: OffloadedCopy, facts: OffloadFacts) -> None:
        self.asked.append((copy, facts))
        if self.error:
            raise self.error


def dropped(owners: Owners, verify: Verified, order: DeleteOrder = DROPPED, **more: Any) -> DeleteOutcome:
    return deleter(owners, verify=verify, **more).delete([order])[0]


def test_a_ledger_counted_as_deleted_goes_once_its_copy_was_verified(owners: Owners) -> None:
    owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})
    verify = Verified()
    assert (dropped(owners, verify).result, there(owners)) == ("deleted", False)
    ((copy, facts),) = verify.asked
    assert (copy.pair, copy.bucket, facts) == (ObjectPair(UID, LEDGER), "offloaded", OffloadFacts(TOPIC, 9, 99))


@pytest.mark.parametrize(("error", "result"), [(Stop("a", "b", "c"), "refused"), (Retry("a", "b", "c"), "retry")])
def test_a_ledger_with_an_unverified_offload_is_kept_with_a_reason(
    owners: Owners, error: TrueupError, result: str
) -> None:
    owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})
    outcome = dropped(owners, Verified(error))
    assert (outcome.result, outcome.detail, there(owners)) == (result, str(error), True)


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda o: o.managed_ledger(LEDGER, 8), "to record the ledger as deleted"),
        (lambda o: o.managed_ledger(LEDGER, 8, copies={LEDGER: (True, False)}), "to record the ledger as deleted"),
        (lambda o: o.managed_ledger(LEDGER, 8, copies={LEDGER: (False, True)}), "to record the ledger as deleted"),
        (lambda o: o.managed_ledger(8, 9), "to record the ledger as deleted"),
        (lambda o: o.managed_ledger(LEDGER, LEDGER, 8, copies={LEDGER: (True, True)}), "found 2"),
        (lambda o: o.cursor("sub", LEDGER), "in use"),
        (lambda o: o.ledger(LEDGER), "version"),
        (lambda o: o.make(o.paths.node(TOPIC), b"\x08\x01"), "at byte 0"),
    ],
)
def test_it_stays_unless_its_owner_alone_counts_it_as_deleted(owners: Owners, act: Any, word: str) -> None:
    owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})
    act(owners)
    verify = Verified()
    outcome = dropped(owners, verify)
    assert (outcome.result, there(owners), word in outcome.detail, verify.asked) == ("refused", True, True, []), outcome


def test_an_open_ledger_that_is_counted_as_deleted_stays(owners: Owners) -> None:
    owners.ledger(6, LedgerState.OPEN)
    owners.managed_ledger(6, 8, copies={6: (True, True)})
    assert dropped(owners, Verified(), DROPPED._replace(ledger=6)).result == "refused"


def test_a_copy_that_is_replaced_after_it_was_verified_undoes_the_deletion(owners: Owners) -> None:
    owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})

    def verify(_copy: OffloadedCopy, _facts: OffloadFacts) -> None:
        owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})

    outcome = deleter(owners, verify=verify).delete([DROPPED])[0]
    assert (outcome.result, there(owners)) == ("refused", True)


def test_what_is_only_asked_is_not_deleted(owners: Owners) -> None:
    owners.managed_ledger(LEDGER, 8, copies={LEDGER: (True, True)})
    reported = deleter(owners, verify=Verified()).check([DROPPED, ORDER, ORDER._replace(ledger=6)])
    assert ([o.result for o in reported], there(owners)) == (["ready", "refused", "gone"], True)
