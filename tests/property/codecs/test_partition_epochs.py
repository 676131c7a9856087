"""The leader epoch in the position of path batches (KIP-320)."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.codecs.test_partition import (
    FROM_TARGET,
    LOCAL,
    STEPS,
    Shape,
    Step,
    Target,
    new_track,
    run,
    shapes,
    source_log,
)
from trueup.connectors.contract import Position
from trueup.connectors.kafka.client.fetch_produce import Fetched
from trueup.connectors.kafka.protocol.record_batch import header_of
from trueup.state.common.errors import Stop


@settings(max_examples=100, deadline=None)
@given(shapes(), STEPS, st.lists(st.integers(0, 2), min_size=25, max_size=25))
@example([(LOCAL, (0,), 1)] * 4, [("fetch", 4), ("send", 0), ("answer", 0), ("keep", 0)], [1] * 25)
@example([(FROM_TARGET, (0,), 1), (LOCAL, (0,), 1)], [("fetch", 1), ("keep", 0), ("fetch", 1), ("keep", 0)], [1] * 25)
def test_a_position_has_the_leader_epoch_of_what_is_before_it(
    made: list[Shape], steps: list[Step], risen: list[int]
) -> None:
    log, epochs = source_log(made), dict[int, int]()
    for number, batch in enumerate(log):
        epoch = sum(risen[: number + 1])
        log[number] = batch[:12] + epoch.to_bytes(4, "big") + batch[16:]
        epochs[header_of(batch).following] = epoch
    _, copier = run(log, steps, Position())
    positions = [position for position, _ in copier.claims]
    claims = [(each.offset, each.resume_state["epoch"]) for each in positions if "epoch" in each.resume_state]
    assert claims[-1:] == [(header_of(log[-1]).following, epoch)]
    assert [(at, found) for at, found in claims if epochs[at] != found] == []


def test_a_source_that_has_other_records_before_the_position_is_not_read_on() -> None:
    track = new_track(Position(20, {"target": 0, "epoch": 3}))
    track.rewind(Target().resume_point(track))
    assert track.epoch == 3
    with pytest.raises(Stop, match=r"others from offset 15 on.*reset this partition of the link to source offset 15"):
        track.accept(Fetched(0, 90, 0, (), memoryview(b""), 15), 20)
