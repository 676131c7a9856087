import numpy as np

from trueup.state.bookkeeper.ledgers import row
from trueup.state.placement.fencing import NO_FORMER
from trueup.state.placement.view import FINDING, MARK, BucketAnswer
from trueup.streams.placement.query import answer_of, row_of


def test_an_answer_survives_its_row():
    moved = NO_FORMER.merge(row(1, ["a", "b"], quorum=2), row(1, ["a", "c"], quorum=2, mzxid=9), None)
    result = BucketAnswer(4, True, 7, np.zeros(2, FINDING), np.zeros(3, MARK), moved)
    bucket, found = answer_of({"bucket": 5, **row_of(result)})
    assert (bucket, found.epoch, found.full, found.ledgers, len(found.findings), len(found.marks)) == (
        5,
        4,
        True,
        7,
        2,
        3,
    )
    assert found.former.to_bytes() == moved.to_bytes()
