import pytest

from trueup.state.common.systems import SYSTEMS, internal
from trueup.state.replication.leases import divide, target_of, topics_of, writer_id_of

NAMES = ["orders", "pay.in", "pay.out", "__consumer_offsets", "trueup-heartbeats", "mm2-offsets.a.internal", "repay.in"]


def test_exact_names_and_expressions_choose_topics():
    assert topics_of(["orders", r"/pay\..*/"], [], NAMES) == ["orders", "pay.in", "pay.out"]


def test_an_exact_name_is_no_expression():
    assert topics_of(["pay.in"], [], ["pay.in", "pay-in"]) == ["pay.in"]


def test_what_is_excluded_stays():
    assert topics_of(["/.*/"], ["/.*pay.*/"], NAMES) == ["orders"]


def test_internal_topics_are_never_chosen():
    assert topics_of(NAMES, [], NAMES) == ["orders", "pay.in", "pay.out", "repay.in"]


@pytest.mark.parametrize("name", ["__changelog", "__debezium-heartbeat", "__strimzi_canary"])
def test_topics_that_begin_with_two_underscores_are_copied_if_they_are_named(name):
    assert (topics_of(["/.*/"], [], [name, "a"]), topics_of([name], [], [name, "a"])) == (["a"], [name])


@pytest.mark.parametrize(
    "name",
    [
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "mm2-configs.a.internal",
        "rmq_sys_REVIVE_LOG",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "%RETRY%group",
        "SCHEDULE_TOPIC_XXXX",
    ],
)
def test_topics_that_systems_keep_for_themselves_are_internal(name):
    assert internal(name)


@pytest.mark.parametrize("name", ["__consumer_offsets_copy", "RMQ_SYS_ORDERS", "mm2-configs", "my__transaction_state"])
def test_topics_of_applications_may_have_names_like_them(name):
    assert not internal(name)


def test_the_journal_is_internal_under_its_own_prefix():
    assert [internal(name, "keeper") for name in ("keeper.east.config", "keepers")] == [True, False]


def test_a_pattern_leaves_out_the_heartbeats_of_the_proxies_of_rocketmq():
    assert topics_of(["/.*/"], [], ["orders", "DefaultHeartBeatSyncerTopic"], "trueup") == ["orders"]


def test_a_template_names_the_target_topic():
    assert target_of("orders", "{source}.{topic}", source="east") == "east.orders"


def test_a_topic_called_like_a_place_in_the_template_is_taken_as_it_is():
    assert target_of("{source}", "{topic}", source="east") == "{source}"


def test_one_topic_may_take_all():
    assert target_of("orders", into="everything") == "everything"


def test_a_flow_fits_its_field_and_is_never_the_default():
    writer_ids = {writer_id_of(f"link-{i}", 0) for i in range(200_000)}
    assert (min(writer_ids), max(writer_ids)) == (1, 0xFFFF)


def test_a_given_flow_is_taken():
    assert writer_id_of("east-west", 0, 7) == 7


def test_links_of_one_name_from_different_clusters_differ():
    assert len({writer_id_of("up", bit) for bit in range(32)}) == 32


def test_heavy_partitions_are_kept_apart():
    assert divide({"a": 10, "b": 9, "c": 1, "d": 1}, 2) == [["a", "d"], ["b", "c"]]


def test_idle_partitions_are_spread_by_count():
    assert [len(lease) for lease in divide(dict.fromkeys(range(7), 0.0), 3)] == [3, 2, 2]


def test_there_are_no_empty_leases():
    assert divide({"a": 1.0}, 8) == [["a"]]


def test_names_that_kafka_refuses_as_topics():
    bad = ("", ".", "..", "a b", "ä", "x" * 250)
    assert [name for name in (*bad, "...", "a.b_c-9", "x" * 249) if SYSTEMS["kafka"].allows(name)] == [
        "...",
        "a.b_c-9",
        "x" * 249,
    ]
