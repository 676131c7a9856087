from dataclasses import replace

import numpy as np
import pandas as pd

from tests.integration.kafka.journals import topology
from trueup.state.bookkeeper.ledgers import row
from trueup.state.placement.policy.fencing import NO_FORMER
from trueup.state.placement.view import FINDING, BucketAnswer
from trueup.streams.bookkeeper.codec import topology_bytes
from trueup.streams.bookkeeper.topics import TOPOLOGY_KEY
from trueup.streams.journal.signing import signer_of
from trueup.streams.placement.query import TOPOLOGY, answer_of, row_of, split


def test_an_answer_survives_its_row():
    moved = NO_FORMER.merge(row(1, ["a", "b"], quorum=2), row(1, ["a", "c"], quorum=2, mzxid=9), None)
    result = BucketAnswer(4, True, 7, np.zeros(2, FINDING), moved)
    bucket, found = answer_of({"bucket": 5, **row_of(result)})
    assert (bucket, found.epoch, found.full, found.ledgers, len(found.findings)) == (5, 4, True, 7, 2)
    assert found.former.to_bytes() == moved.to_bytes()


def test_a_task_takes_no_topology_that_is_not_signed():
    signer = signer_of([b"k" * 32], "trueup", "c", "topology")
    sound = topology_bytes(topology(5))
    forged = topology_bytes(replace(topology(5), epoch=(1 << 63) - 1))
    bodies = [forged, sound + signer.signature(TOPOLOGY_KEY, 1, sound), forged + bytes(40)]
    rows = pd.DataFrame({"kind": [TOPOLOGY] * 3, "key": [TOPOLOGY_KEY] * 3, "value": bodies})
    assert split(iter([rows]), signer)[1] == topology(5)
