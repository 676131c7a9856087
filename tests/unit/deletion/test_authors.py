"""Who ordered or approved a deletion."""

from trueup.state.deletion.lifecycle import Deletion
from trueup.streams.deletion.reconciler import _record, marker_of
from trueup.streams.deletion.report import marker_row
from trueup.streams.deletion.topics import TOPICS
from trueup.streams.journal.codec import decode, encode

MARKERS = next(topic.name for topic in TOPICS if topic.name == "markers")
MARKER = Deletion(7, "deletion.ordered", "", 1, 2, 3, 4, by="ada at 10.0.0.1")


def test_the_author_survives_a_restart() -> None:
    read = marker_of(decode(MARKERS, encode(MARKERS, _record(7, MARKER)[1])))
    assert (read, marker_row(read)["by"]) == (MARKER, "ada at 10.0.0.1")


def test_a_deletion_of_an_earlier_release_has_no_author() -> None:
    body = encode(MARKERS, _record(7, MARKER._replace(by=""))[1])
    assert marker_of(decode(MARKERS, body[:-1])) == MARKER._replace(by="")
