"""The records of owners' nodes in the journal."""

from types import SimpleNamespace

from tests.journals import FakeJournal
from tests.memory_store import MemoryStore
from tests.unit.deletion.test_verdicts import cursor, ledgers, node
from trueup.state.deletion.owners import OwnerStatus, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.view import OwnerBucket
from trueup.streams.deletion.codec import node_rows
from trueup.streams.deletion.owners import Pulsar
from trueup.streams.journal.codec import encode

OTHER = cursor(4, path="/managed-ledgers/other/sub", owner="other")


def rebuilt(*steps: Pointers) -> dict[int, str]:
    """The findings of a view that is built from the journal after these states of nodes were published one by one, of
    ledgers 4 and 9. The owner of both lists 9."""
    journal = FakeJournal()
    cluster, policy = SimpleNamespace(connect=None, reached=0), SimpleNamespace(current=SimpleNamespace(root=""))
    pulsar = Pulsar(cluster, journal, policy, lambda: 0, {})  # type: ignore[arg-type]
    for step in (node(9), *steps):
        pulsar._publish([step])
    nodes = node_rows([encode("owners", record) for record in journal.taken.values()])
    leaks = OwnerBucket(MemoryStore()).step(ledgers({"ledger": 4}, {"ledger": 9}), nodes, asked=True)
    assert leaks is not None
    return {int(row["ledger"]): LEAK_RULES[int(row["rule"])].id for row in leaks.rows}


def test_the_references_of_a_damaged_node_protect_in_a_rebuilt_view() -> None:
    damaged = [OTHER._replace(status=OwnerStatus.UNREADABLE, ledgers=(), mzxid=mzxid) for mzxid in (8, 9)]
    assert rebuilt(OTHER, *damaged) == {}


def test_a_damaged_node_has_no_references_of_a_deleted_one() -> None:
    steps = [
        OTHER._replace(status=status, ledgers=(), mzxid=mzxid)
        for status, mzxid in ((OwnerStatus.GONE, 8), (OwnerStatus.UNREADABLE, 9))
    ]
    assert rebuilt(OTHER, *steps) == {4: "deletion.forgotten"}
