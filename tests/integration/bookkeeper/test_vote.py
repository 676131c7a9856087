"""The Auditor vote on a real ZooKeeper: acquired, kept through lost sessions, shared and released."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.supervised import run
from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.placement.auditor_election import AuditorOrders, AuditorState, Holder, Vote
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import BadSettings

pytestmark = pytest.mark.servers

WAIT_S = 180.0


@dataclass
class Polls:
    """Votes under one root."""

    server: str
    client: ZooKeeperClient
    paths: BookKeeperPaths
    votes: list[Vote] = field(default_factory=list)
    orders_received: list[AuditorOrders] = field(default_factory=list)

    def connect(self) -> ZooKeeperClient:
        acl = [make_digest_acl("u", "p", all=True)]
        return ZooKeeperClient(self.server, timeout=30.0, auth_data=[("digest", "u:p")], default_acl=acl)

    def vote(self, name: str, delay_s: int = 0) -> Vote:
        self.votes.append(Vote(self.connect, self.paths.root, name, self.orders_received.append, delay_s))
        self.votes[-1].start(run)
        wait_until(lambda: self.votes[-1].holder().role is not AuditorState.WAITING, WAIT_S, "the vote to be cast")
        return self.votes[-1]


@pytest.fixture(scope="module")
def client(zookeeper: ZooKeeper) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(zookeeper.address, timeout=30.0, auth_data=[("digest", "u:p")]).open(60.0)
    yield made
    made.shut()


@pytest.fixture
def polls(zookeeper: ZooKeeper, client: ZooKeeperClient, own_root: str) -> Iterator[Polls]:
    root = client.make(own_root)
    made = Polls(zookeeper.address, client, BookKeeperPaths(root))
    yield made
    for vote in made.votes:
        vote.close()


def holder_is(vote: Vote, holder: Holder) -> Callable[[], bool]:
    return lambda: vote.holder() == holder


def test_the_only_vote_is_the_lowest(polls: Polls) -> None:
    vote = polls.vote("trueup-a")
    shown = polls.client.look(polls.paths.election)
    assert shown is not None
    assert (vote.holder(), mark_codec.holder(shown[0])) == (Holder(AuditorState.OURS, "trueup-a"), "trueup-a")


def test_a_later_vote_waits_and_names_the_holder(polls: Polls) -> None:
    first, second = polls.vote("trueup-a"), polls.vote("trueup-b")
    waiting = second.holder()
    first.close()
    wait_until(holder_is(second, Holder(AuditorState.OURS, "trueup-b")), WAIT_S, "the second to follow")
    assert waiting == Holder(AuditorState.OTHER, "trueup-a")


def test_an_expired_session_votes_again(polls: Polls) -> None:
    vote = polls.vote("trueup-a")
    before, _ = polls.client.listing(polls.paths.election)
    session = vote._client
    assert session is not None
    ZooKeeperClient(polls.server, client_id=session.client_id).open().shut()
    wait_until(lambda: polls.client.listing(polls.paths.election)[0] not in (before, []), WAIT_S, "another vote")
    wait_until(holder_is(vote, Holder(AuditorState.OURS, "trueup-a")), WAIT_S, "it to be seen")
    assert len(polls.client.listing(polls.paths.election)[0]) == 1


def test_a_deleted_vote_is_cast_again(polls: Polls) -> None:
    vote = polls.vote("trueup-a")
    (before,), _ = polls.client.listing(polls.paths.election)
    polls.client.drop(f"{polls.paths.election}/{before.decode()}", -1)
    wait_until(lambda: polls.client.listing(polls.paths.election)[0] not in ([before], []), WAIT_S, "another vote")
    wait_until(holder_is(vote, Holder(AuditorState.OURS, "trueup-a")), WAIT_S, "it to be seen")


def test_closing_takes_the_vote_away(polls: Polls) -> None:
    vote = polls.vote("trueup-a")
    vote.close()
    assert (polls.client.listing(polls.paths.election)[0], vote.holder().role) == ([], AuditorState.WAITING)


def test_the_delay_is_created_open_to_all(polls: Polls) -> None:
    polls.vote("trueup-a", delay_s=30)
    found = polls.client.look(polls.paths.delay)
    assert found is not None
    assert (found[0], polls.client.get_acls(polls.paths.delay)[0], polls.orders_received) == (
        b"30",
        OPEN_ACL_UNSAFE,
        [AuditorOrders(30, False, False)],
    )


def test_a_delay_that_is_set_stays(polls: Polls) -> None:
    polls.client.make(polls.paths.replication)
    polls.client.make(polls.paths.delay, b"7")
    polls.vote("trueup-a", delay_s=30)
    assert polls.orders_received == [AuditorOrders(7, False, False)]


@pytest.mark.parametrize(
    ("written", "order"),
    [
        (b"0", AuditorOrders(0, True, False)),
        (b"30", AuditorOrders(30, True, False)),
        (b"60", AuditorOrders(60, False, False)),
    ],
)
def test_writing_the_same_delay_or_none_asks_for_an_audit(polls: Polls, written: bytes, order: AuditorOrders) -> None:
    polls.vote("trueup-a", delay_s=30)
    polls.client.put(polls.paths.delay, written, -1)
    wait_until(lambda: len(polls.orders_received) == 2, WAIT_S, "the order")
    assert polls.orders_received[1] == order


@pytest.mark.parametrize("written", [b"9" * 4_300, b"9" * 11, b"-1", b"soon", b""])
def test_an_invalid_delay_is_reported_and_other_orders_are_applied(polls: Polls, written: bytes) -> None:
    vote = polls.vote("trueup-a", delay_s=30)
    polls.client.put(polls.paths.delay, written, -1)
    polls.client.make(polls.paths.disable)
    wait_until(lambda: polls.orders_received[-1].disabled, WAIT_S, "the switch")
    (problem,) = vote.problems()
    assert (polls.orders_received[-1].delay_s, polls.paths.delay in problem, len(problem) < 300) == (30, True, True)


def test_a_vote_without_a_number_is_reported_and_skipped(polls: Polls) -> None:
    polls.client.make(polls.paths.replication)
    polls.client.make(polls.paths.election)
    polls.client.make(f"{polls.paths.election}/V_{'9' * 4_301}", mark_codec.vote("other"))
    vote = polls.vote("trueup-a")
    assert (vote.holder().role, len(vote.problems())) == (AuditorState.OURS, 1)


CLOSED = [make_digest_acl("else", "secret", all=True)]


def stranger(polls: Polls) -> str:
    """A vote that may not be read."""
    for path in (polls.paths.replication, polls.paths.election):
        if not polls.client.present(path):
            polls.client.make(path)
    return str(polls.client.create(f"{polls.paths.election}/V_", mark_codec.vote("x"), acl=CLOSED, sequence=True))


def test_a_lowest_vote_that_may_not_be_read_is_never_ours(polls: Polls) -> None:
    path = stranger(polls)
    polls.votes.append(Vote(polls.connect, polls.paths.root, "trueup-a", polls.orders_received.append))
    vote = polls.votes[-1]
    vote.start(run)
    wait_until(lambda: path in vote.holder().problem, WAIT_S, "the vote to be named")
    listed = polls.client.listing(polls.paths.election)[0]
    assert (vote.holder().role, "READ" in vote.holder().problem, len(listed)) == (AuditorState.WAITING, True, 2)
    polls.client.drop(path, -1)
    wait_until(holder_is(vote, Holder(AuditorState.OURS, "trueup-a")), WAIT_S, "the vote to follow")


def test_a_later_vote_that_may_not_be_read_is_reported_and_leaves_ours(polls: Polls) -> None:
    vote = polls.vote("trueup-a")
    path = stranger(polls)
    wait_until(lambda: any(path in problem for problem in vote.problems()), WAIT_S, "the vote to be reported")
    assert vote.holder() == Holder(AuditorState.OURS, "trueup-a")


def test_a_switch_that_may_not_be_read_disables(polls: Polls) -> None:
    polls.client.make(polls.paths.replication)
    polls.client.create(polls.paths.disable, b"", acl=CLOSED)
    polls.vote("trueup-a")
    assert polls.orders_received[-1].disabled


def test_an_audit_is_asked_for_once(polls: Polls) -> None:
    polls.vote("trueup-a", delay_s=30)
    polls.client.put(polls.paths.delay, b"30", -1)
    polls.client.make(polls.paths.disable)
    wait_until(lambda: polls.orders_received[-1].disabled, WAIT_S, "the switch")
    assert sum(orders.audit for orders in polls.orders_received) == 1


def test_a_deleted_delay_is_created_again(polls: Polls) -> None:
    polls.vote("trueup-a", delay_s=30)
    polls.client.drop(polls.paths.delay, -1)
    wait_until(lambda: polls.client.look(polls.paths.delay), WAIT_S, "the delay to be back")


def test_names_that_bookkeeper_could_not_parse_are_refused() -> None:
    with pytest.raises(BadSettings):
        Vote(lambda: ZooKeeperClient("127.0.0.1:1"), "/ledgers", "trueup/a", lambda _: None)
