"""Who ordered or approved a deletion."""

from trueup.state.deletion.lifecycle import Deletion
from trueup.streams.deletion.reconciler import _record, deletion_of
from trueup.streams.deletion.report import deletion_row
from trueup.streams.deletion.topics import TOPICS
from trueup.streams.journal.codec import decode, encode

DELETIONS = next(topic.name for topic in TOPICS if topic.name == "deletions")
DELETION = Deletion(7, "deletion.ordered", "", 1, 2, 3, 4, by="ada at 10.0.0.1")


def test_the_author_survives_a_restart() -> None:
    read = deletion_of(decode(DELETIONS, encode(DELETIONS, _record(7, DELETION)[1])))
    assert (read, deletion_row(read)["by"]) == (DELETION, "ada at 10.0.0.1")


def test_a_deletion_of_an_earlier_release_has_no_author() -> None:
    body = encode(DELETIONS, _record(7, DELETION._replace(by=""))[1])
    assert deletion_of(decode(DELETIONS, body[:-1])) == DELETION._replace(by="")
