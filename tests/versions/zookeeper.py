"""ZooKeeper: sessions, the capture of metadata, the Auditor's vote and guarded deletions on a server of one version.

Tests of other suites run here on this server.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import conftest as shared
from tests.integration.bookkeeper import test_capture as capture
from tests.integration.bookkeeper import test_removal as removal
from tests.integration.bookkeeper import test_vote as votes
from tests.integration.zookeeper import test_client as sessions
from tests.versions.given import version
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def zookeeper(new_root: Callable[[], Path]) -> Iterator[ZooKeeper]:
    with ZooKeeper(new_root(), f"zookeeper-{version()}") as made:
        made.up()
        yield made


client, own_root, tree = shared.client, shared.own_root, shared.tree
connect, root, setting = sessions.connect, sessions.root, capture.setting


@pytest.fixture
def polls(zookeeper: ZooKeeper, own_root: str) -> Iterator[votes.Polls]:
    """Votes are created with an ACL for the user of this session."""
    user = ZooKeeperClient(zookeeper.address, timeout=30.0, auth_data=[("digest", "u:p")]).open(60.0)
    made = votes.Polls(zookeeper.address, user, BookKeeperPaths(user.make(own_root)))
    yield made
    for vote in made.votes:
        vote.close()
    user.shut()


test_every_write_is_reported_once_in_order = sessions.test_every_write_below_a_watched_root_is_reported_once_in_order
test_many_reads_find_what_single_reads_find = sessions.test_many_reads_find_what_single_reads_find
test_listings_show_one_instant = sessions.test_listings_show_one_instant_and_nothing_for_what_is_missing
test_a_commit_is_whole_or_nothing = sessions.test_a_commit_is_whole_or_nothing
test_refusals_are_distinguished = sessions.test_refusals_are_distinguished
test_forbidden_is_not_gone = sessions.test_forbidden_is_not_gone
test_all_metadata_are_published = capture.test_at_first_everything_is_published
test_changes_are_followed = capture.test_creations_writes_and_deletions_are_followed
test_a_lost_connection_loses_no_change = capture.test_a_lost_connection_loses_no_change_and_repeats_none
test_an_expired_session_loses_no_change = capture.test_an_expired_session_loses_no_change
test_the_only_vote_is_the_lowest = votes.test_the_only_vote_is_the_lowest
test_a_later_vote_waits = votes.test_a_later_vote_waits_and_names_the_holder
test_an_expired_session_votes_again = votes.test_an_expired_session_votes_again
test_what_is_ordered_is_deleted = removal.test_what_is_ordered_is_gone_and_nothing_else
test_what_was_written_since_stays = removal.test_what_was_written_since_stays
