"""Whether a query has read the journal up to where its view began."""

from typing import Any

from trueup.streams.journal.catch_up import CatchUp


class Topics:
    def __init__(self, **ends: dict[int, int]) -> None:
        self.found = ends

    def topic(self, what: str) -> str:
        return f"t.{what}"

    def ends(self, what: str) -> dict[int, int]:
        return self.found[what]


def report(**read: dict[str, int]) -> dict[str, Any]:
    """A progress report of Spark."""
    return {"sources": [{"endOffset": {f"t.{what}": ends for what, ends in read.items()}}, {"endOffset": None}]}


def made(**ends: dict[int, int]) -> CatchUp:
    found = CatchUp(Topics(**ends), list(ends))
    found.begin()
    return found


def test_every_partition_of_every_topic_counts() -> None:
    read = made(ledgers={0: 5, 1: 3}, owners={0: 2})
    steps = []
    for ledgers, owners in (({"0": 5, "1": 2}, {"0": 2}), ({"0": 5, "1": 3}, {"0": 1}), ({"0": 6, "1": 3}, {"0": 2})):
        read.progress(report(ledgers=ledgers, owners=owners))
        steps.append(read.done)
    assert steps == [False, False, True]


def test_a_partition_that_a_report_does_not_name_was_not_read() -> None:
    read = made(ledgers={0: 0, 1: 1})
    read.progress(report(ledgers={"0": 9}))
    assert not read.done


def test_a_view_that_begins_again_has_to_read_to_the_present_end() -> None:
    topics = Topics(ledgers={0: 1})
    read = CatchUp(topics, ["ledgers"])
    read.begin()
    read.progress(report(ledgers={"0": 1}))
    topics.found = {"ledgers": {0: 7}}
    read.begin()
    read.progress(report(ledgers={"0": 6}))
    assert not read.done
    read.progress(report(ledgers={"0": 7}))
    assert read.done


def test_a_report_before_the_begin_proves_nothing() -> None:
    read = CatchUp(Topics(ledgers={0: 0}), ["ledgers"])
    read.progress(report(ledgers={"0": 1}))
    assert not read.done
