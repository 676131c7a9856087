from dataclasses import replace

import pytest

from trueup.state.replication.anomalies import CopyObservation, PartitionFacts, anomalies, choose
from trueup.state.replication.rules import LINK_RULES
from trueup.streams import catalog

COPIED = CopyObservation(
    position=50, source_id="s", source_start=0, source_end=60, target_id="t", target_end=40, copied_end=40
)


def seen(now: CopyObservation, before: CopyObservation = COPIED) -> list[tuple[str, int, bool]]:
    return [(found.rule.removeprefix("replication."), found.records, found.stops) for found in anomalies(before, now)]


def test_a_healthy_copy_has_no_anomaly():
    assert anomalies(COPIED, COPIED) == []


def test_retention_that_outran_the_link_is_counted_and_the_copy_goes_on():
    (found,) = anomalies(COPIED, replace(COPIED, source_start=57))
    assert (found.rule, found.records, found.stops) == ("replication.retention-outran", 7, False)


def test_a_topic_made_anew_stops_its_copy():
    assert seen(replace(COPIED, source_id="other", source_end=0)) == [("topic-recreated", -1, True)]


def test_a_target_made_anew_stops_the_copy():
    assert seen(replace(COPIED, target_id="other", target_end=0)) == [("target-recreated", -1, True)]


def test_an_id_that_is_not_known_is_no_other_id():
    assert seen(replace(COPIED, source_id="")) == seen(COPIED, replace(COPIED, source_id="")) == []


def test_a_source_that_ends_before_the_copy_counts_the_second_time():
    short = replace(COPIED, source_end=45)
    assert (seen(short), seen(short, short)) == ([], [("source-lost-records", 5, True)])


def test_a_target_that_ends_before_acknowledged_records_counts_the_second_time():
    short = replace(COPIED, target_end=30)
    assert (seen(short), seen(short, short)) == ([], [("target-lost-records", 10, True)])


def test_records_of_others_are_reported_where_the_link_is_the_only_writer():
    assert [seen(replace(COPIED, foreign=3, alone=alone)) for alone in (True, False)] == [
        [("target-written", 3, False)],
        [],
    ]


def test_a_deleted_topic_is_reported_if_it_was_copied():
    assert [seen(replace(COPIED, gone=True, position=at)) for at in (50, -1)] == [[("topic-gone", -1, False)], []]


def test_a_partition_that_was_never_copied_has_lost_nothing():
    assert anomalies(CopyObservation(), replace(COPIED, position=-1, source_start=9)) == []


def test_a_source_that_ends_before_the_first_offset_stops_the_copy():
    short = replace(COPIED, position=-1, start=50, source_end=3)
    assert (seen(short), seen(short, short)) == ([], [("source-lost-records", 47, True)])


def test_every_anomaly_has_a_rule():
    worst = replace(COPIED, source_start=55, source_end=40, target_end=1, foreign=1)
    others = [replace(COPIED, gone=True), replace(COPIED, source_id="x", target_id="y")]
    found = {anomaly.rule for now in (worst, *others) for anomaly in anomalies(worst, now)}
    assert {rule for rule in found if catalog.rules().find(rule) is None} == set()
    assert len(found) == 7


def test_every_rule_of_links_explains_itself():
    assert all(len(rule.why) > 40 and len(rule.remedy) > 40 and rule.title for rule in LINK_RULES)


def test_whole_batches_are_preferred():
    assert choose(PartitionFacts()).path == "batches"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (PartitionFacts(transform=True), "transform"),
        (PartitionFacts(failures="dead-letter"), "failures: dead-letter"),
        (PartitionFacts(into="all"), "all topics go into all"),
        (PartitionFacts(magic=1), "old format 1"),
        (PartitionFacts(compacted=True), "compacts all topics"),
        (PartitionFacts(per_batch=9.9), "9.9 records"),
        (PartitionFacts(target_compression="zstd", source_compression="producer"), "recompresses"),
        (PartitionFacts(target_times="LogAppendTime"), "own timestamps"),
        (PartitionFacts(source_max_bytes=10, target_max_bytes=9), "accepts batches of 9 bytes"),
        (PartitionFacts(copy="records"), "set by the link's copy"),
    ],
)
def test_records_are_copied_one_by_one_where_batches_cannot_be(facts: PartitionFacts, why: str):
    path, reason = choose(facts)
    assert path == "records"
    assert why in reason


def test_the_setting_of_the_link_has_priority():
    assert choose(PartitionFacts(copy="batches", per_batch=1.0)).path == "batches"


def test_a_target_that_compresses_as_the_source_does_takes_batches_as_they_are():
    assert choose(PartitionFacts(source_compression="lz4", target_compression="lz4")).path == "batches"


@pytest.mark.parametrize("per_batch", [30.0, 60.0, 90.0])
@pytest.mark.parametrize("now", ["batches", "records"])
def test_the_path_does_not_change_to_and_fro(per_batch: float, now: str):
    assert choose(PartitionFacts(per_batch=per_batch, now=now)).path == now


@pytest.mark.parametrize(("per_batch", "now", "path"), [(20.0, "batches", "records"), (110.0, "records", "batches")])
def test_the_path_changes_where_the_other_one_costs_much_less(per_batch: float, now: str, path: str):
    assert choose(PartitionFacts(per_batch=per_batch, now=now)).path == path


@pytest.mark.parametrize(
    ("per_batch", "record_bytes", "better"),
    [
        (5, 100, "records"),
        (10, 85, "records"),
        (20, 77, "records"),
        (900, 62, "batches"),
        (3, 600, "records"),
        (10, 540, "records"),
        (20, 526, "batches"),
        (900, 520, "batches"),
    ],
)
def test_the_path_that_was_measured_to_take_less_is_chosen(per_batch: float, record_bytes: float, better: str):
    assert choose(PartitionFacts(per_batch=per_batch, record_bytes=record_bytes)).path == better
